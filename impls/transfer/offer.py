"""A host's server as its tasks see it: started by the first that needs it, found by the others."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from impls.transfer.process import Charge, Owner, Places
from impls.transfer.settings import Transfer

_LOG = logging.getLogger(__package__)
_started: list["subprocess.Popen[bytes]"] = []  # so that they are waited for when they end before this process


def offer(transfer: Transfer, *, query: str, generation: int, host: str, state_dir: str) -> str:
    """Returns the address of this host's server for a query, "" while there is none; starts one then, without waiting.

    A host that cannot start one has none: others then take its bins from the checkpoint.
    """
    places = Places(Path(state_dir), query, generation)
    try:
        lock = places.take()
    except OSError:
        return ""
    if lock is None:
        return str(places.read().get("address", ""))
    try:
        charge = Charge(transfer, query, generation, host, state_dir, Owner.of_this_process())
        _start(charge, places, lock)
    except OSError:
        return ""
    finally:
        os.close(lock)  # the process has its own, for as long as it lives
    return ""


def _start(charge: Charge, places: Places, lock: int) -> None:
    _started[:] = [process for process in _started if process.poll() is None]
    if words := places.last_words():
        _LOG.warning("The process that hands out bins of host %s is started again: %s", charge.host, words)
    log = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "impls.transfer.process"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "GRPC_VERBOSITY": "NONE"},
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(log)
    _started.append(process)
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(charge.to_json())

"""A cluster of hosts that a user starts, looks at and stops; it goes on without the one who has started it."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.files import RESULTS
from harness.lab.hosts.cluster import (
    Cluster,
    await_start,
    end_all,
    forget,
    prepare,
    supervisor_command,
    supervisor_environment,
)
from harness.lab.hosts.isolated import can_isolate
from harness.lab.hosts.settings import Settings
from harness.options import ending

_FOLDER = RESULTS / "cluster"
_END_DEADLINE_S = 30.0


@ending(cut_off="The cluster was not started.")
def start(folder: str | None, *, hosts: int, cores: int, memory: str, netem: str) -> int:
    """Starts a cluster, prints how to use it and returns 0 when its hosts are up."""
    settings = Settings(hosts, cores, memory, netem, isolated=can_isolate())
    place = prepare(_place(folder), settings)
    _start(place)
    running = Cluster(place)
    forms = {True: "in namespaces of their own", False: "on loopback addresses (as root: in namespaces of their own)"}
    sys.stdout.write(
        f"{hosts} hosts {forms[settings.isolated]}, with logs in {place}: ./inv cluster.stop ends them.\n"
        f"./inv bench --master {running.master} --state-dir {running.state_dir}\n"
    )
    return 0


def _start(folder: Path) -> None:
    """Starts a supervisor that stays once its hosts are up, and not before: it ends with this process until then."""
    with (folder / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(
            [*supervisor_command(folder), "--held"], stdin=subprocess.PIPE, stdout=log, stderr=log,
            env=supervisor_environment(folder), start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    try:
        await_start(folder, process.poll)
        Cluster(folder)
        process.stdin.write(b"stay\n")
        process.stdin.close()
    except BaseException:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait(_END_DEADLINE_S)
        raise


@ending()
def stop(folder: str | None) -> int:
    """Ends the cluster of a folder, deletes the hosts' state and returns 0 when nothing of it is left but logs."""
    place = _place(folder)
    end_all(place)
    forget(place)
    return 0


@ending()
def status(folder: str | None) -> int:
    """Prints a table of the hosts and returns 0; 2 where no cluster runs."""
    running = Cluster(_place(folder))
    table = Table("host", "address", "is", "worker", "executors", title=f"{running.master}, driver {running.driver}")
    for host in running.all_hosts():
        executors = ", ".join(map(str, host.executors))
        table.add_row(str(host.number), host.address, host.state, str(host.worker or ""), executors)
    Console().print(table)
    return 0


def _place(folder: str | None) -> Path:
    return Path(folder).absolute() if folder else _FOLDER

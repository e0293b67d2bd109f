"""The address of Spark's master: which forms there are, and whether anything listens there. No Spark is needed."""

import os
import re
import socket

from impls.errors import UsageError

_REACH_DEADLINE_S = 5.0
_ANY_PORT = 9
_LOCAL = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?")
_STANDALONE = re.compile(r"spark://[^/,:]+:\d{1,5}(,[^/,:]+:\d{1,5})*")
_OTHER = re.compile(r"yarn|k8s://.+|local-cluster\[\d+,\s*\d+,\s*\d+\]")


def is_local(master: str | None) -> bool:
    """Returns whether the tasks run inside the driver's own process."""
    return master is None or _LOCAL.fullmatch(master) is not None


def threads_of(master: str | None) -> int | None:
    """Returns how many tasks a local master runs at once, None for another master.

    >>> threads_of("local[6,4]"), threads_of("local"), threads_of("yarn")
    (6, 1, None)
    """
    found = _LOCAL.fullmatch(master or "local")
    if found is None:
        return None
    number = found[2] or "1"
    return os.cpu_count() or 1 if number == "*" else int(number)


def standalone_addresses(master: str) -> list[tuple[str, int]]:
    """Returns the (host, port) pairs of a standalone cluster's masters; none for another kind of master."""
    if _STANDALONE.fullmatch(master) is None:
        return []
    pairs = (address.rsplit(":", 1) for address in master.removeprefix("spark://").split(","))
    return [(host, int(port)) for host, port in pairs]


def address_towards(host: str) -> str:
    """Returns the address of this machine that a packet to a host comes from: by it the host can answer.

    Raises:
        UsageError: there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        try:
            client.connect((host, _ANY_PORT))  # which sends nothing
        except OSError as error:
            raise UsageError(f"No route from this machine to {host} ({error.strerror or error}).") from error
        return str(client.getsockname()[0])


def check_master(master: str | None) -> None:
    """Raises UsageError for a master that Spark cannot use, and for a standalone one where nothing listens.

    Args:
        master: as in `spark.master`; None for local mode.
    """
    if master is None:
        return
    check_retries(master)
    addresses = standalone_addresses(master)
    if not (addresses or is_local(master) or _OTHER.fullmatch(master)) or any(port > 65535 for _, port in addresses):
        raise UsageError(f"{master!r} is no Spark master: give spark://HOST:PORT, yarn, k8s://URL or local[N,4].")
    refused = [why for address in addresses if (why := _refused(address))]
    if addresses and len(refused) == len(addresses):
        raise UsageError(f"No Spark master listens at {master} ({refused[0]}): start one there or mend the address.")


def check_retries(master: str) -> None:
    """Raises UsageError for a local master that ends the query with the first task that fails."""
    if is_local(master) and "," not in master:
        raise UsageError(f"The master {master} never retries a task: use local[N,4].")


def _refused(address: tuple[str, int]) -> str:
    """Returns why no connection can be made, "" where one can."""
    try:
        with socket.create_connection(address, _REACH_DEADLINE_S):
            return ""
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        return str(getattr(error, "strerror", None) or error)

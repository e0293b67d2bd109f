"""What a run on a cluster did between its hosts: where workers ran, what went over the network, how clocks differ."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from impls.protocol.report import Report

Line = Mapping[str, Any]


def hosts_line(reports: Sequence[Report]) -> dict[str, Any]:
    """Returns what an epoch's line says of hosts; nothing where there is only one.

    homes: [worker, host] of where each worker ran. network: [host, host, bytes, ms] of what the second pulled from the
    first. lost: sources of moved bins that could not hand them out, so that the bins came from the checkpoint.
    """
    homes = [[report.worker, report.host] for report in reports if report.host]
    if not homes:
        return {}
    network = [[source, report.host, size, ms] for report in reports for source, size, ms in report.moves.network]
    return {"homes": homes, "network": network, "lost": sum(len(report.moves.lost) for report in reports)}


def hosts_entry(epochs: Sequence[Line], events: Sequence[Line]) -> dict[str, Any] | None:
    """Returns a run's entry about hosts; None for a run on one host.

    Args:
        epochs: the lines of its epoch log, in order.
        events: its events; those named clocks have the offsets of the hosts' clocks.
    """
    clocks = [event["offsets"] for event in events if event["kind"] == "clocks"]
    if not clocks and not any(line.get("homes") for line in epochs):
        return None
    bytes_of: Counter[str] = Counter()
    ms_of: defaultdict[str, float] = defaultdict(float)
    for source, target, size, ms in (pull for line in epochs for pull in line.get("network", ())):
        bytes_of[f"{source} > {target}"] += int(size)
        ms_of[f"{source} > {target}"] += float(ms)
    stayed, counted = _stayed(epochs)
    return {
        "hosts": sorted(
            {host for line in epochs for _, host in line.get("homes", ())} | {h for c in clocks for h in c}
        ),
        "stayed_share": stayed / counted if counted else None,
        "network_bytes": sum(bytes_of.values()),
        "network": [{"between": pair, "bytes": size, "ms": round(ms_of[pair], 3)} for pair, size in bytes_of.items()],
        "lost_sources": sum(int(line.get("lost", 0)) for line in epochs),
        "clocks": _clocks(clocks),
    }


def _stayed(epochs: Sequence[Line]) -> tuple[int, int]:
    """Returns how often a worker ran on the host that it ran on before, and how often it had run before."""
    last: dict[int, str] = {}
    stayed = counted = 0
    for line in epochs:
        for worker, host in line.get("homes", ()):
            counted += worker in last
            stayed += last.get(worker) == host
            last[worker] = host
    return stayed, counted


def _clocks(measured: Sequence[Mapping[str, Sequence[float]]]) -> list[dict[str, Any]]:
    """Returns for each host the offset whose size is largest, of those measured."""
    worst: dict[str, Sequence[float]] = {}
    for offsets in measured:
        for host, found in offsets.items():
            worst[host] = max(worst.get(host, found), found, key=lambda pair: abs(pair[0]))
    return [{"host": host, "offset_ms": at, "within_ms": within} for host, (at, within) in sorted(worst.items())]

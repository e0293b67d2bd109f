"""The data of the report's interactive timelines: latency, epochs, and which worker has which bin in each epoch."""

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun

__all__ = ["replay_of", "timelines"]

_BINS_MOST = 4096  # a replay of more would make the page too large, and its squares too small to see
Line = dict[str, Any]


def timelines(experiment: StoredExperiment) -> list[dict[str, Any]]:
    """Returns, for one comparable run of each mechanism, what the page draws; nothing for a sweep.

    Times are in seconds since the load's begin, latencies and epochs in ms. In real time epochs are ticks.
    """
    if experiment.is_sweep:
        return []
    return [_timeline(run) for run in experiment.typical() if run.entry.get("timeline")]


def _timeline(run: StoredRun) -> dict[str, Any]:
    rows = run.entry["timeline"]
    begins = run.seconds([line["begin_us"] for line in run.epochs])
    return {
        "name": run.mechanism,
        "hue": theme.hue(run.mechanism),
        "unit": "tick" if run.real_time else "epoch",
        "migrations": [[round(begin, 3), round(end, 3)] for begin, end in run.migrations()],
        **{name: [round(row[name], 3) for row in rows] for name in ("at_s", "p50", "p99", "max")},
        "epoch_s": [round(float(at), 3) for at in begins],
        "epoch_ms": [round(line["ms"]["total"], 1) for line in run.epochs],
        "queued": [int(line.get("queued", 0)) for line in run.epochs],
        "moved_bytes": [int(line["moved_bytes"]) for line in run.epochs],
        "replay": replay_of([line["epoch"] for line in run.epochs], _plans(run)),
    }


def _plans(run: StoredRun) -> dict[int, NDArray[np.int64]]:
    path = run.folder / "plan.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    plans: list[Line] = [json.loads(line) for line in lines if line.endswith("\n")]
    return {plan["epoch"]: np.frombuffer(base64.b64decode(plan["routing"]), "<u2").astype(np.int64) for plan in plans}


def replay_of(epochs: list[int], routing: dict[int, NDArray[np.int64]]) -> dict[str, Any] | None:
    """Returns the first routing and its changes as [place of an epoch, bin, worker, bin, worker, ...]; None if unknown.

    Args:
        epochs: numbers of the epochs shown, in order.
        routing: the routing of each epoch, shape (bins,).
    """
    known = [(place, routing[number]) for place, number in enumerate(epochs) if number in routing]
    if not known or len(known[0][1]) > _BINS_MOST:
        return None
    first = before = known[0][1]
    changes = []
    for place, now in known[1:]:
        moved = np.flatnonzero(now != before)
        if len(moved):
            changes.append([place, *np.stack([moved, now[moved]], axis=1).reshape(-1).tolist()])
        before = now
    workers = 1 + max(int(now.max()) for _, now in known)
    return {"workers": workers, "first": first.tolist(), "changes": changes}

"""Epoch logs as Parquet, for whoever analyses them with other tools."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.files import read_json, read_lines
from impls.errors import UsageError

_ROWS = {"homes": ("worker", "host"), "network": ("source", "target", "bytes", "ms")}  # of mixed types: named here


def _epoch_table(run: Path) -> pa.Table:
    """Returns a run's epoch log: a row per epoch, phases as columns `ms_NAME`; lists and what is missing are null.

    Columns besides those of epochs.jsonl: mechanism, round. Those of a cluster, homes and network, hold structs.
    """
    about = read_json(run / "run.json")
    rows: list[dict[str, Any]] = []
    for line in read_lines(run / "epochs.jsonl"):
        phases = {f"ms_{name}": float(value) for name, value in line["ms"].items()}
        plain = {name: value for name, value in line.items() if name != "ms"}
        for name in _ROWS.keys() & plain.keys():
            plain[name] = [dict(zip(_ROWS[name], row, strict=True)) for row in plain[name]]
        rows.append({"mechanism": about.get("mechanism"), "round": about.get("round"), **plain, **phases})
    return pa.Table.from_pylist(rows)


def export(folder: Path) -> list[Path]:
    """Writes epochs.parquet beside each run's epochs.jsonl of a result and returns the files.

    Raises:
        UsageError: the folder has no run with an epoch log.
    """
    logs = sorted(folder.glob("**/epochs.jsonl"))
    if not logs:
        raise UsageError(f"{folder} is no result folder: it has no run with an epoch log.")
    out = []
    for log in logs:
        path, half = log.with_name("epochs.parquet"), log.with_name(".epochs.parquet.part")
        pq.write_table(_epoch_table(log.parent), half)
        half.replace(path)
        out.append(path)
    return out

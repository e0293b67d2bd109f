"""What rows of engines are over the floor: the same load through a consumer, a dictionary and a producer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plots.engines import load_of

FLOOR = "kafka-floor"


def over_floor(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows with steady p50 and processor time over the floor's medians at their load, None without a floor."""

    def over(row: Mapping[str, Any], name: str) -> float | None:
        at = [one for one in rows if one["engine"] == FLOOR and load_of(one) == load_of(row)]
        found = [one[name] for one in at if one["verdict"] == "valid" and one.get(name)]
        return None if not found or row.get(name) is None else float(row[name] / np.median(found))

    def percent(ratio: float | None) -> float | None:
        return None if ratio is None else 100 * ratio

    return [
        {**row, "p50_floor": over(row, "p50_ms"), "cpu_floor_percent": percent(over(row, "cpu_s_per_million"))}
        for row in rows
    ]

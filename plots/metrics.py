"""The table of metrics: each is a function of one run's entry in result.json, with its unit and direction.

metrics.toml lists them.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Unit = Literal["ms", "s", "B", "x", "count", "share"]
_TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Attributes:
        name: short identifier, unit last.
        label: heading of a column or axis.
        unit: ms, s, B (bytes), x (a ratio), count or share (of 1).
        better: which direction is better; None where neither is.
        meaning: what the number says, in one sentence.
        value: the number from a run's entry, None if the run has none.
        in_table: a column of the report's table.
    """

    name: str
    label: str
    unit: Unit
    better: Literal["lower", "higher"] | None
    meaning: str
    value: Callable[[dict[str, Any]], float | None]
    in_table: bool = True


def at(entry: dict[str, Any], *path: str) -> float | None:
    """Returns the number at a path of a nested dictionary, None where a step is missing or is not a number."""
    here: Any = entry
    for step in path:
        if not isinstance(here, dict):
            return None
        here = here.get(step)
    return here if isinstance(here, int | float) and not isinstance(here, bool) else None


def _in(*path: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda entry: at(entry, *path)


def _longest(field: str) -> Callable[[dict[str, Any]], float | None]:
    def value(entry: dict[str, Any]) -> float | None:
        return max((number for number in _each(entry, field) if number is not None), default=None)

    return value


def _each(entry: dict[str, Any], field: str) -> list[float | None]:
    return [at(migration, field) for migration in entry.get("migrations") or []]


def _total(field: str, combine: Callable[[list[float]], float] = sum) -> Callable[[dict[str, Any]], float | None]:
    """Returns the sum over migrations; None where there is none, or where it is not known of one of them."""

    def value(entry: dict[str, Any]) -> float | None:
        found = _each(entry, field)
        known = [number for number in found if number is not None]
        return combine(known) if known and len(known) == len(found) else None

    return value


def _interval_p99(entry: dict[str, Any]) -> float | None:
    rows = [row for row in entry.get("timeline") or [] if row.get("tag") == "migrating"]
    found = [number for row in rows if (number := at(row, "p99")) is not None]
    return max(found) if found else None


def _shipped_share(entry: dict[str, Any]) -> float | None:
    moved, required = (_total(name)(entry) for name in ("bytes", "required_bytes"))
    return None if moved is None or not required else moved / required


def _peak_ratio(entry: dict[str, Any]) -> float | None:
    whole = at(entry, "peak_ratio")
    return whole if whole is not None else _longest("peak_ratio")(entry)


_OWN = {
    "peak_ratio": _peak_ratio,
    "interval_p99_ms": _interval_p99,
    "settled_s": _total("settled_s", max),  # none where a migration was not back in time
    "shipped_share": _shipped_share,
    "replicated_bytes": lambda entry: at(entry, "replicated_bytes") or None,
}


def _metric(name: str, value: str = "", max: str = "", sum: str = "", **rest: Any) -> Metric:  # noqa: A002 - the file's
    """Returns the metric that a table of metrics.toml describes."""
    if value:
        found = _in(*value.split("."))
    elif max:
        found = _longest(max)
    else:
        found = _total(sum) if sum else _OWN[name]
    return Metric(name=name, value=found, **{"better": None, **rest})


_TABLES = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))
METRICS = tuple(_metric(name, **table) for name, table in _TABLES.items())


def by_name(name: str) -> Metric:
    """Returns the metric called `name`; raises KeyError if there is none."""
    return {metric.name: metric for metric in METRICS}[name]


def marks(entry: dict[str, Any]) -> list[str]:
    """Returns what keeps a run of any verdict out of comparisons: a late load, a busy machine."""
    words = ["load late"] if entry.get("load") == "late" else []
    if entry.get("machine") == "busy":
        share = at(entry, "cpu_taken", "share")
        words.append("machine busy" + ("" if share is None else f", {share:.0%} of its CPU time taken away"))
    return words


SATURATED = 0.1  # share of idle CPU time below which a record's latency is mostly its wait for a processor


def saturated(entry: dict[str, Any]) -> bool:
    """Returns whether a run left hardly any of the machine's CPU time idle; it is compared all the same."""
    idle = at(entry, "cpu_idle")
    return idle is not None and idle < SATURATED


def remarks(entry: dict[str, Any]) -> list[str]:
    """Returns what stands beside a run's verdict: what keeps it out of comparisons, and a saturated machine."""
    return [*marks(entry), *(["saturated"] if saturated(entry) else [])]


def _digits(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} GiB"


def plain(value: float | None, digits: int = 0) -> str:
    """Returns a number without its unit, as tables in a terminal have it; a hyphen for a missing one."""
    return "-" if value is None else f"{value:,.{digits}f}"


def show(value: float | None, unit: Unit) -> str:
    """Returns a value with its unit as people read it; a dash for a missing one."""
    if value is None:
        return DASH
    if unit == "B":
        return _bytes(value)
    if unit == "count":
        return f"{value:,.0f}"
    if unit in {"share", "x"}:
        return f"{value:.1%}" if unit == "share" else (f"{value:,.2f}" if value < 100 else f"{value:,.0f}") + _TIMES
    if unit == "ms" and abs(value) >= 10_000:
        return f"{_digits(value / 1000)} s"
    return f"{_digits(value)} {unit}"


REAL_TIME = "real-time"
IN_REAL_TIME = ", real time"  # behind the name of a mechanism
_BASELINES = ("native-", "flink-", "kafka-")  # each has one mode


def titles(mechanism: str, modes: Sequence[str]) -> list[str]:
    """Returns what a mechanism's runs are called in an experiment's modes.

    >>> titles("meces", ["micro-batch", "real-time"]), titles("native-repartition", ["real-time"])
    (['meces', 'meces, real time'], ['native-repartition'])
    """
    if REAL_TIME not in modes or mechanism.startswith(_BASELINES):
        return [mechanism]
    return [f"{mechanism}{IN_REAL_TIME}" if mode == REAL_TIME else mechanism for mode in modes]

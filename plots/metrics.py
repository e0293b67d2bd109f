"""The table of metrics: each is a function of one run's entry in result.json, with its unit and direction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["DASH", "METRICS", "Metric", "at", "by_name", "show"]

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


def _over_migrations(field: str, combine: Callable[[list[float]], float]) -> Callable[[dict[str, Any]], float | None]:
    def value(entry: dict[str, Any]) -> float | None:
        found = [number for migration in entry.get("migrations") or [] if (number := at(migration, field)) is not None]
        return combine(found) if found else None

    return value


def _total(field: str) -> Callable[[dict[str, Any]], float | None]:
    """Returns the sum over migrations; None where there is none, or where it is not known of one of them."""

    def value(entry: dict[str, Any]) -> float | None:
        found = [at(migration, field) for migration in entry.get("migrations") or []]
        known = [number for number in found if number is not None]
        return sum(known) if known and len(known) == len(found) else None

    return value


def _interval_p99(entry: dict[str, Any]) -> float | None:
    rows = [row for row in entry.get("timeline") or [] if row.get("tag") == "migrating"]
    found = [number for row in rows if (number := at(row, "p99")) is not None]
    return max(found) if found else None


def _shipped_share(entry: dict[str, Any]) -> float | None:
    moved, required = (_total(name)(entry) for name in ("bytes", "required_bytes"))
    return None if moved is None or not required else moved / required


def _worst_settled(entry: dict[str, Any]) -> float | None:
    """Returns the longest time back to steady latency; None where a migration was not back in time."""
    found = [at(migration, "settled_s") for migration in entry.get("migrations") or []]
    known = [number for number in found if number is not None]
    return max(known) if known and len(known) == len(found) else None


def _peak_ratio(entry: dict[str, Any]) -> float | None:
    whole = at(entry, "peak_ratio")
    return whole if whole is not None else _over_migrations("peak_ratio", max)(entry)


_WHEN = {"steady": "with no migration under way", "migrating": "whose way from schedule to result met a migration"}
_SHARE = {"p50": "half of the records were done within this time", "p99": "99 % were", "max": "all were"}


def _latency(phase: str) -> list[Metric]:
    return [
        Metric(
            f"latency_{phase}_{p}_ms",
            f"{phase} {p}",
            "ms",
            "lower",
            f"Latency of records {_WHEN[phase]}: {share}.",
            _in("latency_ms", phase, p),
        )
        for p, share in _SHARE.items()
    ]


METRICS: tuple[Metric, ...] = (
    *_latency("steady"),
    *_latency("migrating"),
    Metric(
        "peak_ratio",
        "peak ratio",
        "x",
        "lower",
        "Highest latency while migrating over the median of the maxima of equally long steady windows of the same run.",
        _peak_ratio,
    ),
    Metric(
        "migration_s",
        "duration",
        "s",
        "lower",
        "Time from the first to the last moved bin, of the longest migration.",
        _over_migrations("duration_s", max),
    ),
    Metric(
        "interval_p99_ms",
        "interval p99",
        "ms",
        "lower",
        "Highest 99th percentile of a 250 ms interval while migrating.",
        _interval_p99,
        in_table=False,
    ),
    Metric(
        "latency_migrating_p90_ms",
        "migrating p90",
        "ms",
        "lower",
        "Latency of records whose way from schedule to result met a migration: 90 % were done within this time.",
        _in("latency_ms", "migrating", "p90"),
        in_table=False,
    ),
    Metric(
        "latency_moved_p90_ms",
        "moved p90",
        "ms",
        "lower",
        "The same of the records of bins that the migration moved.",
        _in("latency_ms", "migrating_moved", "p90"),
        in_table=False,
    ),
    Metric(
        "settled_s",
        "back to steady",
        "s",
        "lower",
        "Time from the command until the median latency is below twice the steady one for good, at worst.",
        _worst_settled,
        in_table=False,
    ),
    Metric("moved_bins", "moved bins", "count", None, "Bins moved by all migrations.", _total("bins")),
    Metric("moved_bytes", "moved bytes", "B", "lower", "Bytes of state pulled.", _total("bytes")),
    Metric(
        "shipped_share",
        "shipped share",
        "share",
        "lower",
        "Bytes of state pulled, of the bytes of the bins that had to move.",
        _shipped_share,
        in_table=False,
    ),
    Metric(
        "replicated_bytes",
        "replicated",
        "B",
        "lower",
        "Bytes that brought replicas up to date, over the whole run.",
        lambda entry: at(entry, "replicated_bytes") or None,
        in_table=False,
    ),
    Metric(
        "cache_hit_rate",
        "cache hits",
        "share",
        "higher",
        "Reads of a shared store's entries that the worker's cache answered.",
        _in("cache", "hit_rate"),
        in_table=False,
    ),
    Metric(
        "store_read_p50_ms",
        "store reads",
        "ms",
        "lower",
        "Median time that the slowest worker of a steady epoch waited for a shared store's answers.",
        _in("epoch_ms", "steady", "phases", "read", "p50"),
        in_table=False,
    ),
    Metric(
        "longest_pull_ms",
        "longest pull",
        "ms",
        "lower",
        "Longest time that a worker spent pulling bins in one epoch.",
        _over_migrations("longest_pull_ms", max),
    ),
    Metric(
        "migration_epochs",
        "epochs",
        "count",
        None,
        "Epochs that all migrations took.",
        _total("epochs"),
    ),
    Metric(
        "epoch_steady_p50_ms",
        "epoch p50",
        "ms",
        "lower",
        "Median time of an epoch with no migration under way.",
        _in("epoch_ms", "steady", "p50"),
    ),
    Metric(
        "epoch_migrating_p50_ms",
        "migrating epoch p50",
        "ms",
        "lower",
        "Median time of an epoch while migrating.",
        _in("epoch_ms", "migrating", "p50"),
        in_table=False,
    ),
    Metric(
        "worker_bytes",
        "memory",
        "B",
        "lower",
        "Highest resident memory of any single worker process, mapped files included.",
        _in("memory_bytes", "worker_max"),
    ),
    Metric(
        "records",
        "records",
        "count",
        "higher",
        "Records that the generator sent.",
        _in("generator", "records"),
        in_table=False,
    ),
    Metric(
        "generator_lag_ms",
        "generator lag",
        "ms",
        "lower",
        "How late the generator sent its latest record.",
        _in("generator", "max_lag_ms"),
        in_table=False,
    ),
)


def by_name(name: str) -> Metric:
    """Returns the metric called `name`; raises KeyError if there is none."""
    return {metric.name: metric for metric in METRICS}[name]


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

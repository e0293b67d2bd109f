"""The table of `./inv nexmark`: a row per query and mechanism."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from harness.report.markdown import table_lines
from impls.operators.nexmark import QUERIES
from plots.metrics import Unit, show
from plots.withheld import marks

__all__ = ["COLUMNS", "markdown", "rows_of", "table"]

COLUMNS = (
    "query", "dialect", "mechanism", "verdict", "steady p50", "steady p99", "peak", "peak ratio", "duration", "moved",
)  # fmt: skip


def rows_of(query: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row per run of a query's result: numbers in ms, s and bytes, None where there is none."""
    rows = []
    for entry in result["runs"]:
        steady = entry["latency_ms"]["steady"]
        migration: Mapping[str, Any] = next(iter(entry["migrations"]), {})
        rows.append(
            {
                "query": query,
                "dialect": QUERIES[query].dialect,
                "mechanism": entry["mechanism"],
                "verdict": ", ".join([entry["verdict"], *marks(entry)]),
                "p50_ms": steady["p50"],
                "p99_ms": steady["p99"],
                "peak_ms": migration.get("peak_ms"),
                "peak_ratio": migration.get("peak_ratio"),
                "duration_s": migration.get("duration_s"),
                "bytes": migration.get("bytes"),
                "reasons": entry["reasons"],
            }
        )
    return rows


_UNITS: dict[str, Unit] = {
    "p50_ms": "ms", "p99_ms": "ms", "peak_ms": "ms", "peak_ratio": "x", "duration_s": "s", "bytes": "B",
}  # fmt: skip


def _texts(row: Mapping[str, Any]) -> list[str]:
    head = [row["query"], row["dialect"], row["mechanism"], row["verdict"]]
    return [*head, *(show(row[name], unit) for name, unit in _UNITS.items())]


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the rows for a terminal."""
    out = Table(box=None, pad_edge=False)
    for number, title in enumerate(COLUMNS):
        out.add_column(title, justify="left" if number < 4 else "right", overflow="fold")
    for row in rows:
        out.add_row(*_texts(row))
    return out


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows as a Markdown table."""
    return "\n".join(table_lines(COLUMNS, map(_texts, rows), "llllr")) + "\n"

"""The predicates that look at the result of a suite: NEXMark's table, the bounds of `./inv perf`."""

from typing import Any

from harness.files import read_json
from harness.suites import nexmark
from harness.suites.claims.evidence import Answer, Evidence, NotKnown, joined
from harness.suites.perf import suite as perf


def queries_valid(evidence: Evidence, *, queries: int) -> Answer:
    """Every run of every one of `queries` queries is valid; an invalid one fails, any other leaves it unknown."""
    rows = nexmark.read_rows(evidence.place)
    found = {row["query"] for row in rows}
    named = [f"{row['query']} {row['mechanism']} is {row['verdict']}" for row in rows if not _valid(row)]
    if any(row["verdict"].startswith("invalid") for row in rows):
        return Answer(False, "; ".join(named))
    if named or len(found) < queries:
        raise NotKnown("; ".join([*named, f"{len(found)} of {queries} queries were run"]))
    faults = sum("@" in row["mechanism"] for row in rows)
    hit = f", {faults} of them with a fault" if faults else ""
    return Answer(True, f"{len(rows)} runs of {len(found)} queries{hit}, all valid")


def _valid(row: dict[str, Any]) -> bool:
    return str(row["verdict"]).startswith("valid")


def bounds_kept(evidence: Evidence, *, part: str, tolerance: float = 0.0) -> Answer:
    """Every figure of a part of `./inv perf` keeps the bound that the part states."""
    found = read_json(evidence.place / perf.RESULT_FILE).get("parts", {}).get(part)
    if found is None:
        raise NotKnown(f"the part {part} was not measured")
    return joined(_kept(check, tolerance) for check in found["checks"])


def _kept(check: dict[str, Any], tolerance: float) -> tuple[bool, str]:
    """Returns whether a figure keeps its bound, and both in words."""
    value, bound, most = check["value"], check["bound"], check["at_most"]
    kept = value <= bound * (1 + tolerance) if most else value >= bound * (1 - tolerance)
    return bool(kept), f"{check['sentence']} {value:,.3g} (at {'most' if most else 'least'} {bound:g})"

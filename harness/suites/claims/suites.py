"""The predicates that look at the result of a suite: NEXMark's table, the bounds of `./inv perf`."""

from pathlib import Path
from typing import Any

from harness.files import read_json
from harness.suites.claims.evidence import Answer, Evidence, NotKnown, joined
from harness.suites.nexmark import suite as nexmark
from harness.suites.perf import suite as perf

__all__ = ["bounds_kept", "queries_valid"]


def queries_valid(evidence: Evidence, *, queries: int) -> Answer:
    """Every run of every one of `queries` queries is valid; an invalid one fails, any other leaves it unknown."""
    rows = nexmark.read_rows(_folder(evidence))
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
    found = read_json(_folder(evidence) / perf.RESULT_FILE).get("parts", {}).get(part)
    if found is None:
        raise NotKnown(f"the part {part} was not measured")
    return joined((_keeps(check, tolerance), _said(check)) for check in found["checks"])


def _keeps(check: dict[str, Any], tolerance: float) -> bool:
    if check["at_most"]:
        return bool(check["value"] <= check["bound"] * (1 + tolerance))
    return bool(check["value"] >= check["bound"] * (1 - tolerance))


def _said(check: dict[str, Any]) -> str:
    bound = f"at {'most' if check['at_most'] else 'least'} {check['bound']:g}"
    return f"{check['sentence']} {check['value']:,.3g} ({bound})"


def _folder(evidence: Evidence) -> Path:
    if evidence.folder is None:
        raise NotKnown("there is no result")
    return evidence.folder

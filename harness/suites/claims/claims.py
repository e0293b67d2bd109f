"""Reads claims.toml: what is claimed, what shows it, and what verdict is expected."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.suites.claims.predicates import PREDICATES
from impls.errors import UsageError

CLAIMS_FILE = Path(__file__).with_name("claims.toml")
KINDS = ("bench", "sweep", "nexmark", "perf", "command", "placement")
_VERDICTS = ("PASS", "FAIL", "UNKNOWN")


@dataclass(frozen=True)
class ClaimSource:
    """What shows a claim, or several.

    Attributes:
        name: of the experiment; its results carry it.
        kind: bench, sweep, nexmark or perf (`options` are those of the task), command (a module with `arguments`,
            where {folder} stands for the folder of its result) or placement (computed on the spot).
        minutes: about how long it takes on 2 cores.
        disk_gb: most disk that it has in use at a time, and keeps nearly nothing of.
    """

    name: str
    kind: str
    minutes: float
    disk_gb: float
    options: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One sentence that can be checked.

    Attributes:
        name: a word for it.
        sentence: what is claimed.
        source: what shows it.
        predicate: name of a function of `harness.suites.claims.predicates`, called with `arguments` and `tolerance`.
        tolerance: share by which a limit may be missed.
        mirrors: the paper and section whose result it is; "new" for one of this project.
        expect: the verdict that the project stands for; FAIL for a result of a paper that does not hold here.
        reason: why it fails, where FAIL is expected.
    """

    name: str
    sentence: str
    source: ClaimSource
    predicate: str
    mirrors: str
    tolerance: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    expect: str = "PASS"
    reason: str = ""


def read_claims(path: Path = CLAIMS_FILE) -> list[Claim]:
    """Reads the claims in the order of the file; raises UsageError that names the first that is not well formed."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"The claims {path} cannot be read: {error}.") from error
    sources = {name: _source(name, table) for name, table in data.get("experiments", {}).items()}
    claims = [_claim(table, sources) for table in data.get("claim", [])]
    names = [claim.name for claim in claims]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"The claim {twice!r} is there twice.")
    return claims


def _source(name: str, table: Mapping[str, Any]) -> ClaimSource:
    try:
        source = ClaimSource(name, **{**table, "arguments": tuple(table.get("arguments", ()))})
    except TypeError as error:
        raise UsageError(f"The experiment {name!r} is not well formed: {error}.") from None
    if source.kind not in KINDS or (source.kind == "command") != bool(source.module):
        raise UsageError(f"The experiment {name!r} must be one of {', '.join(KINDS)}, a command with its module.")
    return source


def _claim(table: Mapping[str, Any], sources: Mapping[str, ClaimSource]) -> Claim:
    values, name = dict(table), str(table.get("name", "without a name"))
    experiment = str(values.pop("experiment", ""))
    if experiment not in sources:
        raise UsageError(f"The claim {name!r} names the experiment {experiment!r}, which is not there.")
    try:
        claim = Claim(source=sources[experiment], **values)
    except TypeError as error:
        raise UsageError(f"The claim {name!r} is not well formed: {error}.") from None
    if claim.predicate not in PREDICATES:
        raise UsageError(f"The claim {name!r} names the predicate {claim.predicate!r}: use {', '.join(PREDICATES)}.")
    if claim.expect not in _VERDICTS or (claim.expect == "FAIL") != bool(claim.reason):
        raise UsageError(f"The claim {name!r} must expect PASS, FAIL or UNKNOWN, and FAIL with a reason.")
    return claim

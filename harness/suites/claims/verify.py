"""Checks claims: gathers the evidence of each, asks its predicate, prints the verdict with its figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.files import RESULTS
from harness.options import ending, parse_list
from harness.report.terminal import terminal
from harness.setup.java import use_java
from harness.suites.claims import gather
from harness.suites.claims.claims import Claim, ClaimSource, read_claims
from harness.suites.claims.evidence import Evidence, NotKnown
from harness.suites.claims.predicates import PREDICATES
from impls.errors import UsageError

_QUICK_MINUTES = 10
_STYLES = {"PASS": "green", "FAIL": "red", "UNKNOWN": "yellow"}


@dataclass(frozen=True)
class Checked:
    """A claim's verdict: PASS, FAIL or UNKNOWN, the figures that gave it, and where they come from."""

    claim: Claim
    verdict: str
    figures: str
    origin: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the project stands for."""
        return self.verdict == self.claim.expect


def check(claim: Claim, evidence: Evidence | None) -> Checked:
    """Returns a claim's verdict; UNKNOWN without evidence, or where the evidence does not tell.

    Raises:
        UsageError: the claim's arguments do not fit its predicate.
    """
    if evidence is None:
        return Checked(claim, "UNKNOWN", f"not measured; it takes about {claim.source.minutes:g} min")
    arguments = dict(claim.arguments) | ({"tolerance": claim.tolerance} if claim.tolerance else {})
    try:
        finding = PREDICATES[claim.predicate](evidence, **arguments)
    except NotKnown as why:
        return Checked(claim, "UNKNOWN", str(why), evidence.origin)
    except TypeError as error:
        raise UsageError(
            f"The claim {claim.name!r} does not fit {claim.predicate}: {str(error).removeprefix('_')}."
        ) from error
    return Checked(claim, "PASS" if finding.holds else "FAIL", finding.figures, evidence.origin)


@ending()
def run_claims(
    *,
    only: str = "",
    results: str = "",
    output: str = "",
    quick: bool = False,
    force: bool = False,
    listing: bool = False,
) -> int:
    """Checks the claims and returns the exit code: 0 if every verdict is as expected, 1 if not, 2 for bad input.

    Args:
        only: names of claims, separated by commas; all of them by default.
        results: folder with stored results; then nothing is run.
        output: folder where results are looked for, and to which what is missing goes.
        quick: leave out what takes more than 10 minutes.
        force: measure anew.
        listing: say what there is, and run nothing.
    """
    console = terminal()
    claims = _chosen(read_claims(), only, quick=quick)
    if listing:
        _list(console, claims)
        return 0
    stored = Path(results or output or RESULTS)
    if not stored.is_dir():
        raise UsageError(f"{stored} is no folder: name one with results.")
    obtain = partial(_obtain, folder=stored, console=console, stored_only=bool(results), force=force)
    checked = _check_all(console, claims, obtain)
    _sum_up(console, checked)
    return int(not all(one.as_expected for one in checked))


def _chosen(claims: Sequence[Claim], only: str, *, quick: bool) -> list[Claim]:
    wanted = parse_list(only)
    known = [claim.name for claim in claims]
    for name in wanted:
        if name not in known:
            raise UsageError(f"There is no claim {name!r}: use {', '.join(known)}.")
    chosen = [claim for claim in claims if not wanted or claim.name in wanted]
    return [claim for claim in chosen if not quick or claim.source.minutes <= _QUICK_MINUTES]


def _obtain(source: ClaimSource, folder: Path, console: Console, *, stored_only: bool, force: bool) -> Evidence | None:
    found = gather.find(source, folder) if stored_only or not force else None
    if found is None and not stored_only:
        use_java()
        console.print(f"{source.name}: runs now, about {source.minutes:g} min", markup=False)
        found = gather.make(source, folder, force=force)
    return found


def _check_all(
    console: Console, claims: Sequence[Claim], obtain: Callable[[ClaimSource], Evidence | None]
) -> list[Checked]:
    """Checks claims in order; each piece of evidence is obtained once, when the first claim needs it."""
    gathered: dict[str, Evidence | None] = {}
    checked = []
    for claim in claims:
        if claim.source.name not in gathered:
            gathered[claim.source.name] = obtain(claim.source)
        checked.append(check(claim, gathered[claim.source.name]))
        _print(console, checked[-1])
    return checked


def _print(console: Console, one: Checked) -> None:
    claim, style = one.claim, _STYLES[one.verdict]
    expected = "" if one.as_expected else f", expected {claim.expect}"
    console.print(f"[bold {style}]{one.verdict:<7}[/] [bold]{escape(claim.name)}[/]{expected}")
    lines = [claim.sentence, f"figures: {one.figures}", f"mirrors: {claim.mirrors}"]
    if one.verdict == "FAIL" and claim.reason:
        lines.append(f"reason: {claim.reason}")
    if one.origin:
        lines.append(f"from: {one.origin}")
    for line in lines:
        console.print(f"        {escape(line)}", soft_wrap=True)


def _sum_up(console: Console, checked: Sequence[Checked]) -> None:
    counts = {verdict: sum(one.verdict == verdict for one in checked) for verdict in _STYLES}
    text = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    unexpected = [one.claim.name for one in checked if not one.as_expected]
    rest = f"; not as expected: {', '.join(unexpected)}" if unexpected else "; all as expected"
    console.print(f"{len(checked)} claims: {text or 'none'}{rest}", markup=False)


def _list(console: Console, claims: Sequence[Claim]) -> None:
    for claim in claims:
        source = claim.source
        cost = f"{source.name}, {source.minutes:g} min, {source.disk_gb:g} GB"
        console.print(f"{claim.name} ({cost}; expects {claim.expect})", markup=False)
        console.print(f"        {claim.sentence} [{claim.mirrors}]", markup=False, soft_wrap=True)
    sources = {claim.source.name: claim.source for claim in claims}
    minutes = sum(source.minutes for source in sources.values())
    disk = max((source.disk_gb for source in sources.values()), default=0)
    console.print(f"{len(claims)} claims, {len(sources)} experiments, about {minutes:.0f} min, {disk:g} GB at most")

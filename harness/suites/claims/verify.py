"""Checks claims: finds or makes the evidence of each, asks its predicate, prints the verdict with its figures."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.experiment.description import Experiment
from harness.experiment.make import experiment_from
from harness.files import RESULTS, ROOT, read_json, write_json
from harness.options import CUT_OFF, ending, parse_list
from harness.report.terminal import terminal
from harness.results.machine import describe_machine
from harness.results.place import find_earlier, find_folder, new_folder
from harness.run.runs import AGAIN, check_machine
from harness.setup.java import ensure_jars, use_java
from harness.suites import nexmark
from harness.suites.bench import Suite, bench
from harness.suites.claims.claims import Claim, ClaimSource, read_claims
from harness.suites.claims.evidence import EVIDENCE_FILE, Evidence, NotKnown
from harness.suites.claims.predicates import PREDICATES
from harness.suites.perf import suite as perf
from harness.suites.sweep import Grid, grid_from, sweep
from impls.errors import UsageError

_FOLDER = "{folder}"  # in a command's arguments
_QUICK_MINUTES = 10
_STYLES = {"PASS": "green", "FAIL": "red", "UNKNOWN": "yellow"}

Asked = Experiment | Grid | Suite | perf.PerfSuite


def described(source: ClaimSource) -> Asked:
    """Returns what an experiment of claims.toml asks for that is a task's; raises UsageError for what cannot be."""
    if source.kind == "nexmark":
        return nexmark.suite_from(source.options)
    if source.kind == "perf":
        return perf.suite_from(source.options)
    options = {**source.options, "name": f"claim-{source.name}"}
    return experiment_from(options) if source.kind == "bench" else grid_from(options)


def find(source: ClaimSource, folder: Path) -> Evidence | None:
    """Returns the newest stored evidence below a folder, None if there is none.

    A result counts if all parameters that it names are those asked for; an older one may not know some. It may be of
    another commit, which is printed with the verdict.
    """
    if source.kind == "placement":
        return Evidence()
    if source.kind == "command":
        wanted = _command(source, Path(_FOLDER))
        for path in sorted(folder.glob(f"*/{EVIDENCE_FILE}"), reverse=True):
            said = read_json(path)
            if said.get("command") == wanted:
                return Evidence(path.parent, said)
        return None
    asked = json.loads(json.dumps(described(source).to_json()))

    def matches(stored: Mapping[str, Any]) -> bool:
        return "name" in stored and all(stored[name] == value for name, value in asked.items() if name in stored)

    found = find_folder(folder, "experiment.json", matches, finished=True)
    return None if found is None else Evidence(found)


def make(source: ClaimSource, output: Path, *, force: bool = False) -> Evidence:
    """Runs what shows a claim and returns its evidence; continues a run that was cut off.

    Raises:
        UsageError: the machine lacks something.
        KeyboardInterrupt: cut off.
    """
    if source.kind == "placement":
        return Evidence()
    if source.kind == "command":
        return _run_command(source, output)
    asked = described(source)
    ensure_jars()
    folder, code = _carried_out(asked, output, force=force)
    if code == CUT_OFF:
        raise KeyboardInterrupt
    return Evidence(folder)


def _carried_out(asked: Asked, output: Path, *, force: bool) -> tuple[Path, int]:
    """Returns the result folder and the exit code."""
    if isinstance(asked, Suite):
        return nexmark.measured(asked, output, force=force, again=AGAIN)
    if isinstance(asked, perf.PerfSuite):
        return perf.measured(asked, output, force=force), 0
    if isinstance(asked, Experiment):
        check_machine(asked, output)
        resume = not force and find_earlier(asked, output, finished=False) is not None
        return bench(asked, output, force=force, resume=resume, again=AGAIN)
    largest = max((run.experiment for run, _ in asked.runs()), key=lambda experiment: experiment.keys)
    check_machine(largest, output)
    return sweep(asked, output, force=force, again=AGAIN)


def _command(source: ClaimSource, folder: Path) -> list[str]:
    return ["-m", source.module, *(argument.replace(_FOLDER, str(folder)) for argument in source.arguments)]


def _run_command(source: ClaimSource, output: Path) -> Evidence:
    """Runs a module and keeps what it says, line by line, with its exit code and the machine it ran on."""
    folder = new_folder(output, f"claim-{source.name}")
    start, lines = time.monotonic(), []
    command = [sys.executable, *_command(source, folder)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                sys.stderr.write(line)
    except KeyboardInterrupt:  # which the module has got too, and has ended with
        shutil.rmtree(folder, ignore_errors=True)
        raise
    said = {
        "command": _command(source, Path(_FOLDER)),
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "lines": lines,
        "environment": describe_machine(0),
    }
    write_json(folder / EVIDENCE_FILE, said)
    return Evidence(folder, said)


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
    evidence = find(source, folder) if stored_only or not force else None
    if evidence is None and not stored_only:
        use_java()
        console.print(f"{source.name}: runs now, about {source.minutes:g} min", markup=False)
        evidence = make(source, folder, force=force)
    return evidence


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


def _print(console: Console, checked: Checked) -> None:
    claim, style = checked.claim, _STYLES[checked.verdict]
    expected = "" if checked.as_expected else f", expected {claim.expect}"
    console.print(f"[bold {style}]{checked.verdict:<7}[/] [bold]{escape(claim.name)}[/]{expected}")
    lines = [claim.sentence, f"figures: {checked.figures}", f"mirrors: {claim.mirrors}"]
    if checked.verdict == "FAIL" and claim.reason:
        lines.append(f"reason: {claim.reason}")
    if checked.origin:
        lines.append(f"from: {checked.origin}")
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

"""`./inv fault-test`: the schedule printed first, then one campaign per mechanism, then the table."""

import shutil
import sys
import time
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.files import ROOT
from harness.options import CUT_OFF, ending, parse_names
from harness.results.place import new_folder
from harness.setup.jars import ensure_jars
from harness.setup.java import use_java
from harness.suites.faults.campaign import Campaign
from harness.suites.faults.report import Outcome, report_of, show, write_report
from harness.suites.faults.schedule import EXPECTED, Fault, draw_schedule
from impls import catalog
from impls.durability.files import check_level

__all__ = ["fault_test", "run_fault_test"]

_HEAVY = ("state", "checkpoint", "broker")
_WIDTH = 140  # of a log file, so that names stay whole


def fault_test(
    schedule: list[Fault], folder: Path, *, seed: int, durability: str, console: Console
) -> tuple[dict[str, Any], bool]:
    """Runs a schedule of faults, writes the report into the folder and returns (report, whether it was cut off).

    What is heavy of a campaign without findings is deleted; the logs stay.
    """
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    answers: dict[str, dict[str, Any]] = {}
    cut_off = False

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        resumed = "" if outcome.resume_s is None else f", resumed after {outcome.resume_s:.1f} s"
        words = f": {outcome.said}" if outcome.said else ""
        console.print(f"{outcome.fault.id} {outcome.verdict}{resumed}{words}", soft_wrap=True)

    try:
        for mechanism, faults in groupby(schedule, key=lambda fault: fault.mechanism):
            console.print(f"{mechanism}: begins")
            campaign = Campaign(folder / mechanism, list(faults), seed=seed, durability=durability)
            answers[mechanism] = campaign.run(tell)
            console.print(f"{mechanism}: {answers[mechanism]['verdict']}")
            if answers[mechanism]["verdict"] == "valid" and all(o.good for o in campaign.outcomes):
                _delete(folder / mechanism / name for name in _HEAVY)
    except KeyboardInterrupt:
        cut_off = True
    report = report_of(seed, schedule, outcomes, answers, seconds=time.monotonic() - begun)
    write_report(folder, report)
    return report, cut_off


@ending()
def run_fault_test(
    *,
    seed: int,
    mechanism: str = "",
    only: str = "",
    quick: bool = False,
    durability: str = "process",
    output: str | None = None,
) -> int:
    """Runs the fault test that the options of `./inv fault-test` describe and returns the exit code.

    It is 0 when nothing was lost or doubled and every fault ended as expected, 1 otherwise, 2 for bad input and 130
    when it was cut off. The last line printed is the folder with the report.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    check_level(durability)
    schedule = draw_schedule(
        seed,
        parse_names(mechanism, catalog.names(), "mechanism"),
        only=parse_names(only, EXPECTED, "fault"),
        quick=quick,
    )
    use_java()
    ensure_jars()
    folder = new_folder(Path(output or ROOT / "results"), "faults")
    console.print(f"seed {seed}, durability {durability}, {len(schedule)} faults")
    for fault in schedule:
        console.print(f"{fault.id} {fault.mechanism} {fault.phase} {fault.expected} (draw {fault.draw})")
    report, cut_off = fault_test(schedule, folder, seed=seed, durability=durability, console=console)
    show(report, console)
    sys.stdout.write(f"{folder}\n")
    return CUT_OFF if cut_off else int(not report["good"])


def _delete(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)

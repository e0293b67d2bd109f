"""Part phases: the table of where an epoch's time goes."""

import json
from dataclasses import asdict
from pathlib import Path

from harness.files import write_json
from harness.lab.measuring import measure_in_child
from harness.suites.perf.part import Check, Part, PartResult, Scale, Table
from harness.suites.perf.phases.account import LINES, EpochPhases, shares
from harness.suites.perf.phases.process import EPOCHS_FILE, PhasesSettings

__all__ = ["PART", "measure"]

_LEAST, _MOST = 0.95, 1.05


def measure(folder: Path, scale: Scale) -> PartResult:
    """Runs a steady load once and takes its epochs apart; hash-count, 1 M keys, 10,000 records/s."""
    path = folder / EPOCHS_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        settings = PhasesSettings(scale.pick(1_000_000, 20_000), scale.pick(10_000, 2_000), scale.pick(30.0, 9.0))
        write_json(folder / "phases.json", asdict(settings))
        measure_in_child("harness.suites.perf.phases.process", folder)
    means, share = shares([EpochPhases(**epoch) for epoch in json.loads(path.read_text())])
    total = sum(means.values()) / share
    rows = [[name, f"{ms:,.1f}", f"{ms / total:.1%}", LINES[name]] for name, ms in means.items()]
    rows.append(["all of these", f"{total * share:,.1f}", f"{share:.1%}", f"of an epoch of {total:,.1f} ms"])
    note = "Means over the epochs of a steady load; inside the second stage, of the slowest worker of each epoch."
    table = Table("Where an epoch's time goes", ("phase", "ms", "share", "what it is"), rows, note)
    checks = [
        Check("share of the epoch that the phases add up to", share, _LEAST, at_most=False),
        Check("share of the epoch that the phases add up to", share, _MOST, at_most=True),
    ]
    return PartResult([table], checks)


PART = Part("phases", "Where an epoch's time goes", 1.5, measure)

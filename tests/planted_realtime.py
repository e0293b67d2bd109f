"""What simulated real-time queries with a planted bug are drawn with, and that the bug is found."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "simulation"))

from realtime.parameters import draw
from realtime.runs import simulate

SEEDS = 300
QUIET = {"most": 0}
MOVING = {"mechanism": "megaphone-all-at-once", "commands": ((3, "shuffle", 1), (6, "shuffle", 2), (9, "shuffle", 3))}
QUEUEING = {"mechanism": "on-demand", "options": {"budget": 0}, "commands": MOVING["commands"]}
HOLDING = {**MOVING, "mechanism": "order-unaware", "options": {"pull_budget_bytes": 0}}
REPEATED = {"rates": {"task": 0.02}, "most": 9, "batch_end": 0.0, "bins": 32, "records": 300}
DYING = {"rates": {"task": 0.05, "send": 0.01, "lose": 0.5}, "most": 9, "durability": "process"}
DAMAGED = {"rates": {"damage": 0.05}, "most": 9, "durability": "process"}
TIMED = {"operator": "q5", "durability": "process"}


def find(plant, drawn, checks):
    """Requires that the simulation finds a bug within so many seeds, by one of the checks, and nothing without it."""
    drawn = {"changes": (), **drawn}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        outcomes = (simulate(draw(seed, **drawn)) for seed in range(SEEDS))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found is not None, f"{SEEDS} seeds did not find it"
    assert found.violation in checks, found.sentence
    sound = simulate(draw(found.seed, **drawn))
    assert sound.violation is None, f"it is not the bug that was found: {sound.sentence}"

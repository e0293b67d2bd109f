"""What simulated real-time queries with a planted bug are drawn with, that it is found, and bugs of several tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "simulation"))

import planted
import pytest
from realtime.parameters import draw
from realtime.runs import simulate

from impls.realtime import turn
from impls.realtime.environment import TurnEnvironment
from impls.realtime.turn import WorkerTick
from impls.store.offsets import Offsets

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
    """See `planted.find`; what is drawn for the bug is in `drawn`."""
    planted.find(plant, lambda seed: simulate(draw(seed, **{"changes": (), **drawn})), checks, SEEDS)


def pull_before_final(patch):
    plain = WorkerTick.due

    def due(self, need, *, closing):
        self._all_final = True
        return plain(self, need, closing=closing)

    patch.setattr(WorkerTick, "due", due)


def results_before_the_frame(patch):
    def publish(env, frame, results, raw, report):
        env.send(frame, results)
        turn._fault(env.task, "after-commit")
        env.log(frame.epoch, raw)
        env.latencies.arrived()

    patch.setattr(turn, "_publish", publish)


def results_of_the_last_turn_not_sent_again(patch):
    plain = TurnEnvironment._catch_up

    def catch_up(self):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(TurnEnvironment, "send", lambda *_: None)
            plain(self)

    patch.setattr(TurnEnvironment, "_catch_up", catch_up)


def queue_of_a_repeated_batch_kept(patch):
    patch.setattr(TurnEnvironment, "_give_up", lambda *_: None)
    patch.setattr(Offsets, "new", lambda _, table: table)

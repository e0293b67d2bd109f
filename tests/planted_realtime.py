"""What simulated real-time queries with a planted bug are drawn with, that it is found, and bugs of several tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "simulation"))

import planted
from realtime.parameters import draw
from realtime.runs import simulate

from impls.store.offsets import Offsets
from impls.worker import batches, commit
from impls.worker.pull import Pulls

SEEDS, READERS = 300, ("lookup", "cut")
QUIET = {"most": 0}
MOVING = {"mechanism": "megaphone-all-at-once", "commands": ((3, "shuffle", 1), (6, "shuffle", 2), (9, "shuffle", 3))}
QUEUEING = {"mechanism": "on-demand", "options": {"budget": 0}, "commands": MOVING["commands"]}
HOLDING = {**MOVING, "mechanism": "order-unaware", "options": {"pull_budget_bytes": 0}}
REPEATED = {"rates": {"task": 0.02}, "most": 9, "batch_end": 0.0, "bins": 32, "records": 300}
DYING = {"rates": {"task": 0.05, "send": 0.01, "lose": 0.5}, "most": 9, "durability": "process"}
DAMAGED = {"rates": {"damage": 0.05}, "most": 9, "durability": "process"}
TIMED = {"operator": "q5", "durability": "process"}


def find(plant, drawn, checks):
    """See `planted.find`; what is drawn for the bug is in `drawn`.

    Who reads state beside the workers may see first what any bug has done to it.
    """
    planted.find(plant, lambda seed: simulate(draw(seed, **{"changes": (), **drawn})), {*checks, *READERS}, SEEDS)


def pull_before_final(patch):
    plain = Pulls.due
    patch.setattr(Pulls, "due", lambda self, need, _final, *, closing: plain(self, need, None, closing=closing))


def results_before_the_frame(patch):
    def publish(env, frame, results, record, report):
        env.send(frame, results)
        commit._fault(env.task, "after-commit")
        env.log(frame.epoch, record)
        env.latencies.arrived(report.done_us)

    patch.setattr(commit, "_publish", publish)


def queue_of_a_repeated_batch_kept(patch):
    patch.setattr(batches, "_give_up", lambda *_: None)
    patch.setattr(Offsets, "new", lambda _, table: table)

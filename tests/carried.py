"""Views and options of mechanisms to draw, and what the runtime does with a plan, on the view alone."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from impls import catalog
from impls.protocol.plan import EpochPlan, Pull
from impls.protocol.view import View
from impls.worker.pull import on_demand, within_budget

NEVER = 1 << 30
KNOBS = {  # values of options by their name, whichever mechanism has them
    "background_share": [0.0, 0.3, 1.0],
    "bins_per_pair": [1, 2, 5],
    "bytes_per_pair": [0, 50, 4000],
    "catch_up_epochs": [1, 2, 7],
    "chunk_bins": [0, 1, 3, 16],
    "factor": [0, 1, 3],
    "concurrent": [1, 2, 9],
    "gap_epochs": [0, 1, 3],
    "interval_epochs": [1, 2, 10],
    "order": ["hot", "bin", "random"],
    "pull_budget_bytes": [0, 50, 4000, 1 << 22],
    "replicate_bytes": [0, 50, 4000, 1 << 22],
    "replicated": [0.0, 0.3, 1.0],
    "small_bytes": [0, 200, 1 << 13],
    "subscale_bins": [0, 1, 7],
}


@st.composite
def knobs(draw, name: str) -> dict:
    """Options for a mechanism."""
    return {option: draw(st.sampled_from(KNOBS[option])) for option in catalog.options(name) if option in KNOBS}


@st.composite
def views(draw, *, quiet: bool = False) -> View:
    """A migration at its beginning or half done; `quiet`: no bin is under way and no record waits."""
    bins = 2 ** draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    workers, goals = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    routing, goal = (random.integers(0, n, bins).astype(np.int32) for n in (workers, goals))
    goal = np.where(random.random(bins) < draw(st.sampled_from([0.0, 0.5, 0.95])), routing, goal)
    started = draw(st.integers(1, 100))
    epoch = started if quiet else started + draw(st.integers(0, 20))
    away = random.random(bins) < (0.0 if quiet else draw(st.sampled_from([0.0, 0.1, 0.6])))
    location = np.where(away, random.integers(0, workers, bins), routing).astype(np.int32)
    waits = (random.random(bins) < draw(st.sampled_from([0.0, 0.3]))) & (not quiet)
    size = random.integers(0, draw(st.sampled_from([1, 100, 1 << 21])), bins)
    age = np.where(random.random(bins) < 0.5, NEVER, random.integers(0, 30, bins)).astype(np.int32)
    everyone = int(max(routing.max(), location.max(), goal.max())) + 1
    return replace(
        View.make(routing, goal.astype(np.int32), epoch=epoch, started=started),
        workers=everyone,
        location=location,
        age=np.where(location == routing, age, NEVER).astype(np.int32),
        rate=random.exponential(10, bins) * (random.random(bins) < 0.7),
        queued=np.where(waits, random.integers(1, 50, bins), 0).astype(np.int64),
        size=size.astype(np.int64),
        replicas=_replicas(random, location, everyone, epoch, draw(st.sampled_from([0.0, 0.5, 1.0]))),
        stopped=draw(st.sampled_from([-1, epoch, draw(st.integers(started, epoch))])),
    )


def _replicas(random, location, workers: int, epoch: int, share: float) -> dict[tuple[int, int], int]:
    """Replicas of some bins at workers that do not own them."""
    pairs = [(b, w) for b in range(len(location)) for w in range(workers) if w != location[b]]
    return {pair: int(random.integers(0, epoch)) for pair in pairs if random.random() < share}


def chosen(plan: EpochPlan, view: View) -> list[Pull]:
    """The pulls that the workers carry out, each within the plan's budget."""
    by_worker: dict[int, list[Pull]] = defaultdict(list)
    for pull in plan.pulls:
        by_worker[pull.target].append(pull)
    sizes = dict(enumerate(view.size.tolist()))
    need = {bin_: n for bin_, n in enumerate((view.queued + view.rate.astype(int)).tolist()) if n}
    done: list[Pull] = []
    for pulls in by_worker.values():
        done += (
            on_demand(pulls, need, sizes, plan) if plan.on_demand else within_budget(pulls, sizes, plan.budget_bytes)
        )
    return done


def carried(view: View, plan: EpochPlan, random: np.random.Generator) -> View:
    """The view of the next epoch; after a stop, that of the same epoch again."""
    if plan.stop is not None:
        return replace(view, stopped=view.epoch)
    location, age, replicas = view.location.copy(), view.age + (view.age < NEVER), dict(view.replicas)
    for bin_, worker in plan.copies.replicas:
        replicas[bin_, worker] = view.epoch - 1
    for bin_, worker in plan.copies.standbys:
        replicas[bin_, worker] = view.epoch
    for pull in chosen(plan, view):
        location[pull.bin], age[pull.bin] = pull.target, 1
        replicas.pop((pull.bin, pull.target), None)
    runs = location == plan.routing
    runs[list(plan.hold)] = False
    arrived = random.integers(0, 3, view.bins)
    return replace(
        view,
        epoch=view.epoch + 1,
        routing=plan.routing.copy(),
        location=location,
        age=age.astype(np.int32),
        queued=np.where(runs, 0, view.queued + arrived).astype(np.int64),
        replicas=replicas,
    )


def settled(view: View) -> bool:
    """Whether the migration is complete, as the controller sees it."""
    return bool((view.location == view.goal).all() and (view.routing == view.goal).all() and not view.queued.any())

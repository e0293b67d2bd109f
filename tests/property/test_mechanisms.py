"""Every mechanism there is, on random views: valid plans, progress, nothing moved in vain, same view same plan."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from carried import carried, chosen, knobs, settled, views
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from harness.suites.conformance.bounds import bound, completes
from impls import catalog
from impls.protocol.plan import EpochPlan, WrittenPlan, validate
from impls.protocol.replicas import NEVER, Copies
from impls.protocol.view import View

pytestmark = pytest.mark.sampled(3)

settings = partial(given_settings, deadline=None)  # a migration is up to a hundred plans
RESTARTS = {"runtime-restart": "query", "restart-application": "application"}
LIVE = [name for name in catalog.names() if name not in {"none", *RESTARTS}]


@pytest.mark.parametrize("name", catalog.names())
@given(data=st.data(), view=views())
@settings(max_examples=60)
def test_the_plan_is_valid_and_the_same_for_the_same_view(name, data, view):
    options = data.draw(knobs(name))
    plans = [catalog.make(name, **options).plan(view) for _ in range(2)]
    validate(plans[0], view)
    once, twice = (WrittenPlan(view.epoch, 1, view.workers, plan).to_json() for plan in plans)
    assert once == twice


@pytest.mark.parametrize("name", catalog.names())
@given(data=st.data(), view=views())
@settings(max_examples=40)
def test_a_plan_changes_nothing_in_its_view(name, data, view):
    before = replace(view, **{f: getattr(view, f).copy() for f in ("routing", "location", "goal", "size", "queued")})
    catalog.make(name, **data.draw(knobs(name))).plan(view)
    for field in ("routing", "location", "goal", "size", "queued"):
        assert np.array_equal(getattr(view, field), getattr(before, field)), field


@pytest.mark.parametrize("name", catalog.names())
@given(data=st.data(), view=views(quiet=True))
@settings(max_examples=40)
def test_replicas_between_migrations_are_a_valid_plan_within_their_budget(name, data, view):
    view = replace(view, goal=view.routing)
    options = data.draw(knobs(name))
    pairs = catalog.make(name, **options).replicas(view)
    validate(EpochPlan(view.routing.copy(), copies=Copies(pairs)), view)
    check_copies(view, pairs, options)


def check_copies(view, pairs, options):
    """First copies of a worker fit its budget, or are a single one."""
    first = defaultdict(list)
    for bin_, worker in pairs:
        if (bin_, worker) not in view.replicas:
            first[worker].append(int(view.size[bin_]))
    for sizes in first.values():
        assert len(sizes) == 1 or sum(sizes) <= options["replicate_bytes"]


@pytest.mark.parametrize("name", catalog.names())
@given(data=st.data(), view=views())
@settings(max_examples=60)
def test_nothing_moves_that_is_in_place_and_what_moves_goes_where_it_must(name, data, view):
    plan = catalog.make(name, **data.draw(knobs(name))).plan(view)
    under_way = view.location != view.routing
    towards = np.where(under_way, view.routing, view.goal)
    assert all(view.location[pull.bin] != pull.target == towards[pull.bin] for pull in plan.pulls)
    assert all(plan.routing[bin_] in {view.routing[bin_], towards[bin_]} for bin_ in range(view.bins))
    assert all(worker == towards[bin_] != view.location[bin_] for bin_, worker in plan.copies.all)


@pytest.mark.parametrize("name", catalog.names())
@given(data=st.data(), view=views())
@settings(max_examples=60)
def test_no_bin_has_two_owners_and_budgets_are_kept(name, data, view):
    options = data.draw(knobs(name))
    plan = catalog.make(name, **options).plan(view)
    pulls = chosen(plan, view)
    assert len({pull.bin for pull in pulls}) == len(pulls)
    assert all(pull.source == view.location[pull.bin] for pull in pulls)
    if "pull_budget_bytes" in options and plan.pulls:
        assert plan.budget_bytes == options["pull_budget_bytes"]
        for worker in {pull.target for pull in pulls}:
            sizes = [int(view.size[pull.bin]) for pull in pulls if pull.target == worker]
            assert sum(sizes) <= plan.budget_bytes or sum(size > 0 for size in sizes) == 1
    if "replicate_bytes" in options:
        check_copies(view, plan.copies.replicas, options)


@pytest.mark.parametrize("name", [name for name in catalog.names() if completes(name)])
@pytest.mark.parametrize("quiet", [True, False], ids=["from its beginning", "from the middle"])
@given(data=st.data(), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_a_migration_is_complete_within_its_bound(name, quiet, data, seed):
    view, options = data.draw(views(quiet=quiet)), data.draw(knobs(name))
    mechanism, random = catalog.make(name, **options), np.random.default_rng(seed)
    most, epochs = bound(name, options, view), 0
    while not settled(view) or not epochs:
        plan = mechanism.plan(view)
        validate(plan, view)
        after = carried(view, plan, random)
        assert_progress(view, plan, after, options)
        epochs += plan.stop is None
        assert epochs <= most, f"the migration takes more than {most} epochs"
        view = after


def moves_left(view) -> int:
    """Moves until every bin is at its goal: a bin under way goes on first."""
    return int((view.location != view.routing).sum() + (view.routing != view.goal).sum())


def assert_progress(view, plan, after, options):
    """No bin gets further away; when none gets closer, it is one of the waits that a mechanism states."""
    assert moves_left(after) <= moves_left(view)
    if moves_left(after) < moves_left(view) or not moves_left(view):
        return
    copies = any(after.replicas[pair] > view.replicas.get(pair, -1) for pair in plan.copies.all)
    gap = (view.epoch - view.started) % (options.get("gap_epochs", 0) + 1) != 0
    assert plan.stop or view.queued.any() or copies or gap, "nothing is done and nothing waited for"


@pytest.mark.parametrize("name", LIVE)
@given(view=views(quiet=True))
@settings(max_examples=60)
def test_a_live_mechanism_moves_or_copies_in_its_first_epoch(name, view):
    plan = catalog.make(name).plan(view)
    copies = plan.copies.all  # copying first is progress too
    assert bool(plan.pulls or copies) == bool(len(view.misplaced))


@pytest.mark.parametrize("name", RESTARTS)
@given(view=views(quiet=True))
def test_a_restart_stops_once_and_then_pulls_everything_from_the_checkpoint(name, view):
    plan = catalog.make(name).plan(view)
    stopped = view.stopped >= view.started
    assert (plan.stop == RESTARTS[name]) == (len(view.misplaced) > 0 and not stopped)
    assert [pull.bin for pull in plan.pulls] == (view.misplaced.tolist() if stopped else [])
    assert plan.from_checkpoint == (len(plan.pulls) > 0)


@given(view=views(quiet=True), per_pair=st.integers(1, 5), gap=st.integers(0, 3), later=st.integers(0, 9))
def test_a_batched_epoch_is_a_matching_and_gaps_are_kept(view, per_pair, gap, later):
    view = replace(view, epoch=view.started + later)
    plan = catalog.make("megaphone-batched", bins_per_pair=per_pair, gap_epochs=gap, small_bytes=0).plan(view)
    pairs = {(pull.source, pull.target) for pull in plan.pulls}
    assert len({source for source, _ in pairs}) == len(pairs) == len({target for _, target in pairs})
    for pair in pairs:
        assert sum((pull.source, pull.target) == pair for pull in plan.pulls) <= per_pair
    moving = later % (gap + 1) == 0
    assert bool(plan.pulls) == (moving and len(view.misplaced) > 0)


@given(view=views(quiet=True), small=st.sampled_from([0, 50, 4000]))
def test_small_bins_are_not_counted_in_a_batched_step(view, small):
    plain, more = (
        catalog.make("megaphone-batched", bins_per_pair=1, bytes_per_pair=0, small_bytes=bytes_).plan(view)
        for bytes_ in (0, small)
    )
    assert set(plain.pulls) <= set(more.pulls)
    assert {(pull.source, pull.target) for pull in plain.pulls} == {(pull.source, pull.target) for pull in more.pulls}
    for source in {pull.source for pull in more.pulls}:
        sizes = [int(view.size[pull.bin]) for pull in more.pulls if pull.source == source]
        assert len(sizes) == 1 or sum(sizes) <= small


@given(view=views(quiet=True), budget=st.sampled_from([1, 50, 4000]))
def test_a_batched_step_keeps_to_its_bytes_but_moves_one_bin_of_each_pair(view, budget):
    plain, bounded = (
        catalog.make("megaphone-batched", bytes_per_pair=bytes_, bins_per_pair=5, small_bytes=0).plan(view)
        for bytes_ in (0, budget)
    )
    assert set(bounded.pulls) <= set(plain.pulls)
    of = {(pull.source, pull.target): [] for pull in plain.pulls}
    for pull in bounded.pulls:
        of[pull.source, pull.target].append(int(view.size[pull.bin]))
    for pair, sizes in of.items():
        wanted = [int(view.size[pull.bin]) for pull in plain.pulls if (pull.source, pull.target) == pair]
        assert len(sizes) == 1 or sum(sizes) <= budget
        assert len(sizes) == len(wanted) or sum(wanted[: len(sizes) + 1]) > budget


@given(view=views(), concurrent=st.integers(1, 3), least=st.integers(1, 8))
def test_a_worker_takes_part_in_few_subscales_none_of_which_is_small(view, concurrent, least):
    plan = catalog.make("drrs", concurrent=concurrent, subscale_bins=least).plan(view)
    under_way = set(np.flatnonzero(view.location != view.routing).tolist())
    begun = Counter((pull.source, pull.target) for pull in plan.pulls if pull.bin not in under_way)
    waiting = Counter((pull.source, pull.target) for pull in pulls_of_everything(view) if pull.bin not in under_way)
    assert under_way <= {pull.bin for pull in plan.pulls}
    for worker in range(view.workers):
        subscales = sum(max(1, bins // (2 * least)) for pair, bins in begun.items() if worker in pair)
        assert subscales <= concurrent
    for pair, bins in begun.items():
        assert bins >= min(least, waiting[pair])


def pulls_of_everything(view):
    """Every pull that a view allows."""
    return catalog.make("megaphone-all-at-once").plan(view).pulls


@given(view=views(quiet=True), chunk=st.integers(1, 5), order=st.sampled_from(["hot", "bin", "random"]))
def test_a_chunk_is_of_one_kind_and_in_its_order(view, chunk, order):
    plan = catalog.make("spacker", chunk_bins=chunk, order=order).plan(view)
    kinds = {pull.bin: (pull.bin, pull.target) in view.replicas for pull in plan.pulls}
    assert set(kinds.values()) <= {plan.from_replica}
    same = [b for b in view.misplaced.tolist() if ((b, int(view.goal[b])) in view.replicas) == plan.from_replica]
    assert len(kinds) == min(chunk, len(same))
    if order == "hot":
        assert sorted(-view.rate[same])[:chunk] == [-view.rate[bin_] for bin_ in kinds]
    if order == "bin":
        assert list(kinds) == same[:chunk]


@given(view=views(quiet=True), share=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_a_share_of_the_bins_has_replicas_everywhere_else(view, share):
    view = replace(view, goal=view.routing, replicas={})
    pairs = catalog.make("spacker", replicated=share, replicate_bytes=1 << 30).replicas(view)
    assert len({bin_ for bin_, _ in pairs}) == (int(view.bins * share) if view.workers > 1 else 0)
    assert len(pairs) == int(view.bins * share) * (view.workers - 1)


@given(view=views(quiet=True))
def test_fluid_moves_one_bin_and_all_at_once_all(view):
    wanted = len(view.misplaced)
    assert len(catalog.make("megaphone-fluid").plan(view).pulls) == min(wanted, 1)
    assert len(catalog.make("megaphone-all-at-once").plan(view).pulls) == wanted


@given(view=views(quiet=True), budget=st.sampled_from([0, 50, 4000]))
def test_meces_pulls_what_is_wanted_most_and_then_the_hottest(view, budget):
    plan = catalog.make("meces", pull_budget_bytes=budget).plan(view)
    rates = [view.rate[pull.bin] for pull in plan.pulls]
    assert rates == sorted(rates, reverse=True)
    assert plan.on_demand


@pytest.mark.parametrize("name", ["rhino", "replicated-dataflow"])
@given(view=views(quiet=True))
def test_a_handover_takes_replicas_that_are_there(name, view):
    plan = catalog.make(name).plan(view)
    shown = [view.epoch - 1 - view.replicas.get((pull.bin, pull.target), -NEVER) for pull in plan.pulls]
    most = {"rhino": catalog.options("rhino").get("interval_epochs"), "replicated-dataflow": 0}[name]
    assert all(lag <= most for lag in shown)
    assert plan.from_replica == bool(plan.pulls)


def test_the_matching_is_maximum():
    routing = np.array([0, 0, 1, 1], np.int32)  # 0 may give to 2 or 3, 1 only to 2: both can move in one epoch
    plan = catalog.make("megaphone-batched").plan(View.make(routing, np.array([2, 3, 2, 2], np.int32)))
    assert {(pull.source, pull.target) for pull in plan.pulls} == {(0, 3), (1, 2)}


@pytest.mark.parametrize("name", LIVE)
def test_a_thousand_workers_and_16384_bins_are_planned(name):
    random = np.random.default_rng(1)
    routing, goal = (random.integers(0, 1000, 1 << 14).astype(np.int32) for _ in range(2))
    view = View.make(routing, goal)
    validate(catalog.make(name).plan(view), view)

"""What old owners delete in an epoch: within a budget, with progress, and never what has come back."""

from hypothesis import given
from hypothesis import strategies as st

from impls.protocol.plan import Drop, Pull, drops_within_budget

DROPS = st.lists(
    st.builds(Drop, st.integers(0, 20), st.integers(0, 3), st.integers(0, 50)),
    unique_by=lambda drop: (drop.bin, drop.worker),
)


@given(DROPS, st.integers(0, 100))
def test_each_worker_drops_within_its_budget_but_always_something(pending, budget):
    chosen = drops_within_budget(pending, (), budget)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(pending)
    for worker in {drop.worker for drop in pending}:
        own = [drop.entries for drop in chosen if drop.worker == worker]
        assert own
        assert sum(own) <= budget or len(own) == 1 or set(own[1:]) == {0}


@given(DROPS, st.sets(st.tuples(st.integers(0, 20), st.integers(0, 3))))
def test_what_is_pulled_back_is_dropped_before_it_comes(pending, back):
    chosen = drops_within_budget(pending, [Pull(bin_, 9, worker) for bin_, worker in back], 0)
    waiting = set(pending) - set(chosen)
    assert not {(drop.bin, drop.worker) for drop in waiting} & back


@given(DROPS, st.sets(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=1), st.integers(0, 100))
def test_an_epoch_with_pulls_drops_nothing_else(pending, back, budget):
    chosen = drops_within_budget(pending, [Pull(bin_, 9, worker) for bin_, worker in back], budget)
    assert {(drop.bin, drop.worker) for drop in chosen} <= back


def test_what_fits_goes_before_what_does_not():
    pending = [Drop(0, 1, 60), Drop(1, 1, 60), Drop(2, 1, 40)]
    assert drops_within_budget(pending, (), 100) == [pending[0], pending[2]]

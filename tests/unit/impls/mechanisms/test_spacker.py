"""Spacker's knobs: what is refused, and when a changelog is needed."""

import numpy as np
import pytest

from harness.experiment.description import Experiment
from harness.experiment.make import check
from impls import catalog
from impls.errors import UsageError
from impls.protocol.view import View


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("order", "coldest", "hot, bin or random, not 'coldest'"),
        ("replicated", 1.5, "between 0 and 1, not 1.5"),
        ("chunk_bins", -1, "chunk_bins cannot be negative"),
        ("interval_epochs", 0, "at least 1"),
        ("replicate_bytes", -1, "replicate_bytes cannot be negative"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(option, value, said):
    with pytest.raises(UsageError, match=said):
        catalog.make("spacker", **{option: value})


def test_only_replicas_need_a_changelog():
    def given(**options):
        return Experiment(mechanisms=("spacker",), durability="none", options=options)

    check(given())
    with pytest.raises(UsageError, match="Replicas are fed from the changelog"):
        check(given(replicated=0.5))
    assert not catalog.make("spacker").replicates


def test_a_random_order_is_the_same_each_time_and_not_that_of_the_bins():
    view = View.make(np.zeros(64, np.int32), np.ones(64, np.int32))
    plans = [catalog.make("spacker", order="random", chunk_bins=64).plan(view) for _ in range(2)]
    bins = [pull.bin for pull in plans[0].pulls]
    assert bins == [pull.bin for pull in plans[1].pulls] != sorted(bins) == list(range(64))

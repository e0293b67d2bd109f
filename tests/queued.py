"""Records put into queues, as a commit does with those of bins whose state is not there."""

import numpy as np

from impls.operators.base import Input
from impls.worker.inputs import queue_input

BINS = 16


def add_to_queues(txn, number, table):
    """Appends records to the queues of their bins and returns (bin, stored part)."""
    return queue_input(txn, number, Input(np.ones(BINS, bool), None, table))

"""Trials: a version of the pipeline runs on a few records, and everything is taken back."""

from collections.abc import Callable
from dataclasses import replace

import lmdb
import numpy as np
import pyarrow as pa

from impls.operators.base import Input
from impls.operators.blame import Blame, Place, blamed, raise_store_error
from impls.protocol.report import Pipelines
from impls.protocol.versions import Versions
from impls.store.state import BinState
from impls.worker.query import Task
from impls.worker.versions import PipelineError, Running, reach

_TRIAL_RECORDS = 256
_TRIAL_BINS = 4  # whose state is turned in a trial

Begin = Callable[[], lmdb.Transaction | None]


def try_out(task: Task, begin: Begin, table: pa.Table | None) -> Pipelines | None:
    """Runs a version on a few records, takes everything back, and returns what to report; None if there is no trial.

    Where records are set aside, it does not count against a version that it fails on those that fail already.

    Args:
        task: the worker's task.
        begin: begins a transaction inside the worker's; None where the store has no such.
        table: the records, None for none.
    """
    versions = task.order.written.versions
    if versions is None or not versions.trial or table is None or not len(table):
        return None
    few = table.slice(0, _TRIAL_RECORDS)
    bins = few.column("bin").to_numpy()
    few = few.filter(pa.array(np.isin(bins, bins[:_TRIAL_BINS])))
    inner = begin()
    if inner is None:
        return None
    try:
        wanted = Versions(np.full_like(versions.required, versions.trial))
        state = BinState(inner, task.spec.bins, careful=task.spec.on_error == "skip")
        Running(replace(task, refused=None, stuck=()), state, wanted).run([_input_of(task, few)])
        reach("during-trial", task)
    except PipelineError as error:
        inner.abort()
        if error.records is None or not {*error.records.places} <= _failing(task, begin, few):
            return Pipelines(tried=len(few), failed=[[versions.trial, str(error)]])
    finally:
        inner.abort()
    return Pipelines(tried=len(few))


def _input_of(task: Task, records: pa.Table) -> Input:
    mask, written = np.zeros(task.spec.bins, bool), task.order.written
    mask[records.column("bin").to_numpy()] = True
    return Input(mask, task.watermark, records, clock=written.clock)


def _failing(task: Task, begin: Begin, few: pa.Table) -> set[Place]:
    """Returns the records, of those that may be set aside, on which the versions fail that bins run under."""
    versions = task.order.written.versions
    if task.spec.on_error != "skip" or versions is None or (inner := begin()) is None:
        return set()
    found: Blame | None = None
    try:
        state = BinState(inner, task.spec.bins, careful=True)
        Running(task, state, Versions(versions.required)).run([_input_of(task, few)])
    except PipelineError as error:
        found = error.records
    except Exception as error:  # of version 0
        raise_store_error(error)
        found = blamed(error)
    finally:
        inner.abort()
    return set() if found is None else {*found.places}

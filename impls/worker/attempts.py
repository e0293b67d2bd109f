"""One epoch of a worker as a task of a micro-batch runs it, and what an attempt leaves for the next one."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.protocol.report import Report
from impls.store.environment import store_path
from impls.transfer.client import offer
from impls.worker.cells import CELL
from impls.worker.inputs import highest_times
from impls.worker.parts import Cause, Untrusted, own_records
from impls.worker.query import Task
from impls.worker.worker import Answer, Worker

_ATTEMPTS_TRUSTED = 2  # attempts that may die in an environment before it is taken for the cause


def run_epoch(task: Task, tables: Iterable[pa.Table]) -> tuple[Report, NDArray[np.void]]:
    """Runs one epoch of a worker on its records, in one commit, and returns its report and latency cells.

    The environment is rebuilt from the checkpoint first when two attempts have died in it.

    Raises StateError when the stored state does not fit the epoch.
    """
    received, server = list(tables), _hand_out(task)
    if task.order.check_frame:
        _forget_generations(task)
    untrusted = Untrusted(Cause.DEADLY) if task.attempt >= _ATTEMPTS_TRUSTED and _died(task) else None
    worker = Worker(
        task.spec, task.worker, attempt=task.attempt, host=task.host, untrusted=untrusted, progress=task.progress
    )
    try:
        answer = _run(worker, task, received)
    except Exception:  # also the operator's: the environment is not what has failed
        _mark_failure(task)
        raise
    finally:
        worker.close()
    _forget_failures(task)
    answer.report.server = server
    return answer.report, np.frombuffer(answer.cells, CELL)


def _run(worker: Worker, task: Task, received: list[pa.Table]) -> Answer:
    worker.begin(task.order)
    if not worker.ended:
        records, operator = own_records(task, received), task.spec.operator
        timed = records is not None and operator.event_time is not None
        times = highest_times(records, operator) if timed else None
        pulls = worker.pulls.due(worker.need([] if records is None else [records]))
        worker.commit(records, pulls, times=times, ends=True)
    return worker.end(received)


def _hand_out(task: Task) -> str:
    """Returns where this host hands out bins, "" if it does not or not yet."""
    spec = task.spec
    if spec.transfer is None or spec.shared is not None or not task.host:
        return ""
    return offer(
        spec.transfer, query=spec.query, generation=task.order.generation, host=task.host, state_dir=task.state_dir
    )


def _failure(task: Task, attempt: int) -> Path:
    path = store_path(task.state_dir, task.worker)
    return path.with_name(f".{path.name}-{task.order.generation}-{task.epoch}-{attempt}.failed")


def _mark_failure(task: Task) -> None:
    """Notes that an attempt failed with a reason, so that the next one does not take it for a crash."""
    try:
        _failure(task, task.attempt).touch()
    except OSError:  # the folder itself is what failed
        return


def _forget_failures(task: Task) -> None:
    for before in range(task.attempt):
        _failure(task, before).unlink(missing_ok=True)


def _forget_generations(task: Task) -> None:
    """Deletes the notes of attempts under earlier drivers."""
    path = store_path(task.state_dir, task.worker)
    for note in path.parent.glob(f".{path.name}-*-*-*.failed"):
        if int(note.stem.split("-")[-3]) < task.order.generation:
            note.unlink(missing_ok=True)


def _died(task: Task) -> bool:
    """Returns whether the last attempts ended without a reason: then the environment may be what killed them."""
    return task.spec.files is not None and not any(
        _failure(task, task.attempt - back).exists() for back in range(1, _ATTEMPTS_TRUSTED + 1)
    )

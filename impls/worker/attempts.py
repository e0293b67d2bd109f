"""One epoch of a worker as its task runs it: attempts that start again, and what an attempt leaves for the next one."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.report import Report
from impls.store.environment import DAMAGE, MAP_BYTES, store_path
from impls.transfer.client import offer
from impls.worker.core import WorkerCore
from impls.worker.parts import Cause, Untrusted
from impls.worker.query import Task
from impls.worker.refused import Again
from impls.worker.versions import without

_NO_SPACE_BYTES = 1 << 20
_ATTEMPTS_TRUSTED = 2  # attempts that may die in an environment before it is taken for the cause


def run_epoch(task: Task, tables: Iterable[pa.Table]) -> tuple[Report, NDArray[np.void]]:
    """Runs one epoch of a worker on given records and returns its report and latency cells.

    It starts again with a larger map whenever the store's map was full, and once with an environment rebuilt from the
    checkpoint when the one found turns out to be damaged, or when two attempts have died in it.

    Raises StateError when the stored state does not fit the epoch.
    """
    received, map_bytes, spec = list(tables), MAP_BYTES, task.spec
    server = _hand_out(task)
    if task.order.check_frame:
        _forget_generations(task)
    untrusted = Untrusted(Cause.DEADLY) if task.attempt >= _ATTEMPTS_TRUSTED and _died(task) else None
    while True:
        core = WorkerCore(task, map_bytes=map_bytes, untrusted=untrusted)
        try:
            core.begin()
            for table in received:
                core.receive(table)
            answer = core.end()
        except lmdb.MapFullError:
            map_bytes = core.map_bytes * 2
        except DAMAGE as error:
            if untrusted is not None or spec.files is None:
                raise _failed(
                    task, f"Worker {task.worker} cannot use its state in {task.state_dir}: {error}"
                ) from error
            untrusted = Untrusted(Cause.DAMAGED, str(error))
        except lmdb.Error as error:
            where = f"{task.state_dir}: {error} ({_space(task.state_dir)})"
            raise _failed(task, f"Worker {task.worker} cannot write its state in {where}.") from error
        except Again as error:
            task = _without(task, error)
        except Exception:  # also the operator's: the environment is not what has failed
            _mark_failure(task)
            raise
        else:
            _forget_failures(task)
            answer[0].server = server
            return answer
        finally:
            core.close()


def _without(task: Task, error: Again) -> Task:
    try:
        return without(task, error)
    except StateError as failure:
        raise _failed(task, str(failure)) from error


def _hand_out(task: Task) -> str:
    """Returns where this host hands out bins, "" if it does not or not yet."""
    spec = task.spec
    if spec.transfer is None or spec.shared is not None or not task.host:
        return ""
    return offer(
        spec.transfer, query=spec.query, generation=task.order.generation, host=task.host, state_dir=task.state_dir
    )


def _space(folder: str) -> str:
    """Returns the free space of the disk: LMDB calls a page that was written in part an input/output error."""
    free = shutil.disk_usage(folder).free
    return "No space left on device" if free < _NO_SPACE_BYTES else f"{free >> 20} MiB are free"


def _failure(task: Task, attempt: int) -> Path:
    path = store_path(task.state_dir, task.worker)
    return path.with_name(f".{path.name}-{task.order.generation}-{task.epoch}-{attempt}.failed")


def _failed(task: Task, why: str) -> StateError:
    """Returns the error with which an attempt fails, and notes that it had a reason."""
    _mark_failure(task)
    return StateError(why)


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

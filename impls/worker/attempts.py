"""One epoch of a worker as its task runs it: attempts that begin anew, and what one leaves behind for the next."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.protocol.report import Report
from impls.store.environment import MAP_BYTES, store_path
from impls.worker.core import WorkerCore
from impls.worker.opening import DAMAGE
from impls.worker.order import StepOrder

__all__ = ["run_epoch"]

_NO_SPACE_BYTES = 1 << 20
_ATTEMPTS_TRUSTED = 2  # attempts that may die in an environment before it is taken for the cause


def run_epoch(
    order: StepOrder, worker: int, attempt: int, tables: Iterable[pa.Table]
) -> tuple[Report, NDArray[np.void]]:
    """Runs one epoch of a worker on given records.

    It begins anew with a larger map whenever the store's map was full, and once with an environment rebuilt from the
    checkpoint when the one found turns out to be damaged, or when two attempts have died in it.

    Raises StateError when the stored state does not fit the epoch.
    """
    received, map_bytes = list(tables), MAP_BYTES
    distrust = "two attempts died in it" if attempt >= _ATTEMPTS_TRUSTED and _died(order, worker, attempt) else ""
    while True:
        core = WorkerCore(order, worker, attempt, map_bytes=map_bytes, distrust=distrust)
        try:
            core.begin()
            for table in received:
                core.receive(table)
            answer = core.end()
        except lmdb.MapFullError:
            map_bytes = core.map_bytes * 2
        except DAMAGE as error:
            if distrust or order.files is None:
                raise StateError(f"Worker {worker} cannot use its state in {order.state_dir}: {error}") from error
            distrust = f"damaged: {error}"
        except lmdb.Error as error:
            raise StateError(
                f"Worker {worker} cannot write its state in {order.state_dir}: {error} ({_space(order)})."
            ) from error
        except StateError:
            _mark_failure(order, worker, attempt)
            raise
        else:
            _forget_failures(order, worker, attempt)
            return answer
        finally:
            core.close()


def _space(order: StepOrder) -> str:
    """Returns what is left of the disk: LMDB calls a page that was written in part an input/output error."""
    free = shutil.disk_usage(order.state_dir).free
    return "No space left on device" if free < _NO_SPACE_BYTES else f"{free >> 20} MiB are free"


def _failure(order: StepOrder, worker: int, attempt: int) -> Path:
    path = store_path(order.state_dir, worker)
    return path.with_name(f".{path.name}-{order.generation}-{order.written.epoch}-{attempt}.failed")


def _mark_failure(order: StepOrder, worker: int, attempt: int) -> None:
    """Notes that an attempt failed with a reason, so that the next one does not take it for a crash."""
    try:
        _failure(order, worker, attempt).touch()
    except OSError:  # the folder itself is what failed
        return


def _forget_failures(order: StepOrder, worker: int, attempt: int) -> None:
    for before in range(attempt):
        _failure(order, worker, before).unlink(missing_ok=True)


def _died(order: StepOrder, worker: int, attempt: int) -> bool:
    """Returns whether the last attempts ended without a reason: then the environment may be what killed them."""
    return order.files is not None and not any(
        _failure(order, worker, attempt - back).exists() for back in range(1, _ATTEMPTS_TRUSTED + 1)
    )

"""Spark's Python daemon, with all that a step needs imported before it forks: a new worker is ready in milliseconds.

Spark's own daemon imports nothing, as a library that starts a thread cannot be forked; each new worker then takes one
to two seconds of processor time for its imports, in the middle of a rescale. Here the libraries are told to start none,
and where one has all the same, Spark's own daemon takes over.
"""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_THREADLESS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
_PYTHON_MIN = (3, 11)  # an older one may not even read Spark's own daemon, and would fail without a word of why
_TASKS = Path("/proc/self/task")


def preload() -> bool:
    """Imports what a step needs and returns whether this process can be forked: it has one thread, as far as known."""
    os.environ.update({name: value for name, value in _THREADLESS.items() if name not in os.environ})
    import pandas  # noqa: F401, ICN001, PLC0415 - Spark's worker imports it
    import pyspark.worker  # noqa: F401, PLC0415

    import impls.operators.nexmark  # noqa: PLC0415
    import impls.spark.realtime.steps  # noqa: PLC0415
    import impls.spark.step  # noqa: PLC0415
    import impls.worker.results  # noqa: F401, PLC0415

    gc.collect()
    gc.freeze()  # what was imported stays shared with the workers: their collector does not touch it
    return _TASKS.is_dir() and len(list(_TASKS.iterdir())) == 1


def main() -> None:
    """Runs the daemon until Spark ends it.

    Without the libraries it is Spark's own, whose workers tell the driver what they lack; a daemon that ends does not.
    """
    if sys.version_info < _PYTHON_MIN:
        sys.exit("PYTHON_VERSION_MISMATCH: the executor runs Python {}.{}".format(*sys.version_info))
    try:
        ready = preload()
    except ImportError:
        ready = False
    if not ready:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark import daemon  # noqa: PLC0415

    daemon.worker = _quiet(daemon.worker)
    daemon.manager()


def _quiet(worker: Callable[..., int]) -> Callable[..., int]:
    """Returns a worker that ends without a stack trace when Spark has ended its task, as it does when a query stops."""

    def run(*given: Any) -> int:
        try:
            return worker(*given)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


if __name__ == "__main__":
    main()

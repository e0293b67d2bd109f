"""What `./inv release` does: a session of Spark's, the user's own query, and at the end where it goes on."""

import importlib.util
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from harness.lab.bringup import open_session, stop_session
from harness.options import ending
from impls.errors import UsageError
from impls.releasing.releasing import Released, release
from impls.releasing.template import FORMAT

Query = Callable[[SparkSession], DataFrame]


@ending("The checkpoint was not made.")
def run_release(given: dict[str, Any]) -> int:
    """Releases a checkpoint as the options say, prints what was released and returns the exit code."""
    checkpoint, into, query = (given.pop(name) for name in ("checkpoint", "into", "query"))
    build = query_in(query)
    spark = open_session("release", given.pop("threads"), settings={FORMAT: given.pop("format")})
    try:
        released = release(_frame(build, spark, query), checkpoint, into, **given)
    finally:
        stop_session(spark)
    sys.stdout.write(f"{in_words(released)}\n{into}\n")
    return 0


def query_in(text: str) -> Query:
    """Returns a function of a file, given as FILE.py:FUNCTION.

    What the file defines, and what stands beside it and is imported, goes to Spark's workers by value: they do not
    have the file's folder in their search path.

    Raises UsageError where there is no such file or function, or the file cannot be run.
    """
    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise UsageError(f"There is no file {path or text!r}: name FILE.py:FUNCTION.")
    whole, before = Path(path).resolve(), {known.partition(".")[0] for known in sys.modules}
    found = getattr(_module(whole), name, None)
    if not callable(found):
        raise UsageError(f"The file {path} has no function {name!r}.")

    def build(spark: SparkSession) -> DataFrame:
        frame: DataFrame = found(spark)
        _go_by_value(whole.parent, before)
        return frame

    return build


def _go_by_value(folder: Path, before: Collection[str]) -> None:
    """Lets modules of a folder go by value that none of the packages known before has."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        own = file is not None and Path(file).resolve().is_relative_to(folder) and "site-packages" not in file
        if own and name.partition(".")[0] not in before:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _module(path: Path) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for what it imports: behind all others, else its json.py is everybody's
    name = f"query_of_{path.stem}"  # a file may be called as a module that is there
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"The file {path} is no file of Python's.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"The file {path} cannot be run: {type(error).__name__}: {error}.") from error
    return module


def _frame(build: Query, spark: SparkSession, query: str) -> DataFrame:
    try:
        found: object = build(spark)
    except (Exception, SystemExit) as error:
        said = (str(error).splitlines() or ["it does not say why"])[0]
        raise UsageError(f"{query} has failed: {type(error).__name__}: {said}") from error
    if not isinstance(found, DataFrame):
        raise UsageError(f"{query} has returned a {type(found).__name__}, and no DataFrame.")
    return found


def in_words(released: Released) -> str:
    """Returns two sentences: what was released, and where the query goes on."""
    return (
        f"The state behind epoch {released.epoch} was released into {released.partitions} partitions in "
        f"{released.seconds:.1f} s. The Spark query goes on with batch {released.batch + 1}."
    )

"""What executors need to run a step: this package's code, the user's code as bytes, and Python where hosts lack it.

The code goes as a zip file that Spark copies into each executor's working folder, and PYTHONPATH names it there, so the
daemon that imports a step's libraries before it forks is found too. An environment goes as an archive (Spark's
`spark.archives`), unpacked in the same folder, whose Python the executors then start.
"""

import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from impls.driver.codes import Offer
from impls.errors import UsageError
from impls.operators.pipeline import Contents, steps_of
from impls.operators.steps import Step
from impls.spark.master import is_local
from impls.spark.readiness import check_executors, check_operator

Archive = Path | str | Callable[[], Path] | None
"""A packed environment: its path or URI; a function that makes it, called only where the executors lack it; or none."""

_PACKAGE = Path(__file__).resolve().parents[1]
_CODE = f"{_PACKAGE.name}.zip"
_ENVIRONMENT = "environment"
_KINDS = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")


def cluster_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings by which executors find the code, the daemon's too; the user's own PYTHONPATH stays."""
    path = ":".join(filter(None, [_CODE, settings.get("spark.executorEnv.PYTHONPATH", "")]))
    return {**settings, "spark.executorEnv.PYTHONPATH": path}


def ship(spark: SparkSession, archive: Archive = None) -> None:
    """Sends what the executors need and returns when a step could run on each of them.

    Executors fetch it with their first task, also those that come later: the code lies in the session's own temporary
    folder, which Spark deletes when its JVM ends, however the driver has ended.

    Raises:
        UsageError: the archive is not there, or the executors' Python cannot run a step.
    """
    _ship_code(spark)
    if callable(archive):
        try:
            check_executors(spark)
        except UsageError:
            _ship_environment(spark, archive())
        else:
            return
    elif archive is not None:
        _ship_environment(spark, archive)
    check_executors(spark)


def equip(spark: SparkSession, operator: object, files: Sequence[str | Path]) -> None:
    """Sends a user's own modules to the executors; on a cluster also this package, unless that has been done.

    Args:
        spark: the session, also one that `impls.spark.session` has not made.
        operator: what the executors must be able to load; this is tried on a cluster.
        files: modules (.py, .zip) and folders of packages.

    Raises:
        UsageError: there is no such file, or the executors cannot load the operator.
    """
    _ship_modules(spark, files)
    if not is_local(spark.sparkContext.master):
        if _CODE not in (spark.sparkContext._python_includes or ()):
            _ship_code(spark)
        check_operator(spark, operator)


def _ship_code(spark: SparkSession) -> None:
    """Sends this package's code to the executors."""
    target = Path(spark.sparkContext._temp_dir or ".") / _CODE
    _zip(_PACKAGE, target)
    spark.sparkContext.addPyFile(str(target))


def _ship_environment(spark: SparkSession, archive: Path | str) -> None:
    """Sends a packed environment to the executors and lets them use its Python from the next job on."""
    check_archive(archive)
    spark.sparkContext.addArchive(f"{archive}#{_ENVIRONMENT}")
    spark.sparkContext.pythonExec = f"./{_ENVIRONMENT}/bin/python"


def check_archive(archive: Path | str) -> None:
    """Raises UsageError for a path or URI that Spark would not unpack, and for a file that is not there."""
    if not str(archive).endswith(_KINDS):
        raise UsageError(f"{archive} is no archive that Spark unpacks: its name ends with none of {', '.join(_KINDS)}.")
    if "://" not in str(archive) and not Path(archive).is_file():
        raise UsageError(f"There is no archive {archive}: ./inv cluster.pack makes one and prints its path.")


def _ship_modules(spark: SparkSession, files: Sequence[str | Path]) -> None:
    """Makes a user's own modules known to the executors: files .py or .zip, or folders of packages.

    Raises:
        UsageError: there is no such file, or it is none of these.
    """
    for number, given in enumerate(files):
        path = Path(given)
        if path.is_dir() and (path / "__init__.py").is_file():
            target = Path(spark.sparkContext._temp_dir or ".") / f"{path.resolve().name}-{number}.zip"
            _zip(path.resolve(), target)
            path = target
        elif not path.is_file() or path.suffix not in {".py", ".zip", ".egg"}:
            raise UsageError(f"{given} in py_files is neither a .py or .zip file nor the folder of a package.")
        spark.sparkContext.addPyFile(str(path))


def _zip(package: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(package.rglob("*.py")):
            out.write(path, path.relative_to(package.parent))


_INSTALLED = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "purelib", "platlib"))


def pickled(contents: Contents) -> bytes:
    """Returns a version's code; raises UsageError when it holds what cannot be pickled."""
    operator = contents.operator
    parts = [operator.keyed, *(step.function for step in steps_of(operator)), contents.migrate, contents.back]
    return dumped(contents, parts)


def pickled_offer(offer: Offer) -> bytes:
    """Returns an offer as `Offers.put` takes it; raises UsageError when it holds what cannot be pickled."""
    function = offer.by.function if isinstance(offer.by, Step) else None
    return dumped(offer, [offer.by, function, offer.migrate, offer.back])


def dumped(what: Any, parts: list[Any]) -> bytes:
    """Returns an object as bytes, with the code of its parts where that is the user's own.

    Raises:
        UsageError: it cannot be pickled.
    """
    with ExitStack() as stack:
        registered = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]  # by the user, and to stay so
        for module in dict.fromkeys(m for m in _own_modules(parts) if m.__name__ not in registered):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            raw: bytes = cloudpickle.dumps(what)  # type: ignore[no-untyped-call]
        except (TypeError, AttributeError, ValueError, PySparkException) as error:
            raise UsageError(f"The pipeline cannot be sent to the workers: {error}.") from error
    return raw


def _own_modules(parts: list[Any]) -> Iterator[ModuleType]:
    """Yields the modules of objects that are neither installed nor of this package: executors may not have them."""
    for part in parts:
        name = getattr(part, "__module__", None) or type(part).__module__
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if module is not None and file is not None and name != "__main__":
            path = Path(file).resolve()
            if not any(path.is_relative_to(folder) for folder in (*_INSTALLED, _PACKAGE)):
                yield module

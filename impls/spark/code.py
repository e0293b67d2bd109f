"""The code of a version as bytes that any process of the query can load: the user's own modules go by value."""

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from impls.errors import UsageError
from impls.operators.pipeline import Contents, steps_of

__all__ = ["dumped", "pickled"]

_INSTALLED = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("stdlib", "purelib", "platlib"))
_PACKAGE = Path(__file__).resolve().parents[1]


def pickled(contents: Contents) -> bytes:
    """Returns a version's code; raises UsageError when it holds what cannot be pickled."""
    operator = contents.operator
    parts = [operator.keyed, *(step.function for step in steps_of(operator)), contents.migrate, contents.back]
    return dumped(contents, parts)


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

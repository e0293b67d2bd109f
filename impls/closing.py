"""What a `with` statement closes at its end, or when it fails."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar

_LOG = logging.getLogger(__name__)


class Closing:
    """Has a method `close`, which the end of a `with` statement calls, whether or not the statement failed."""

    __slots__ = ()

    def close(self) -> None:
        """Gives back what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def ended_on_error(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` when the `with` statement fails."""
    try:
        yield
    except BaseException:
        end()
        raise


class _Closeable(Protocol):
    def close(self) -> None: ...


_What = TypeVar("_What", bound=_Closeable)


@contextmanager
def closed_on_error(what: _What) -> Iterator[_What]:
    """Closes what it gives when the `with` statement fails."""
    with ended_on_error(what.close):
        yield what


def end_all(ends: Iterable[Callable[[], None]], what: str) -> Exception | None:
    """Calls every function, whatever another one raises, and returns the first error; each is logged."""
    first: Exception | None = None
    for end in ends:
        try:
            end()
        except Exception as error:
            _LOG.error("The %s could not be closed whole: %s: %s", what, type(error).__name__, error)
            first = first or error
    return first


def close_all(ends: Iterable[Callable[[], None]], what: str) -> None:
    """Calls every function, whatever another one raises, and raises the first error; each is logged."""
    if (error := end_all(ends, what)) is not None:
        raise error

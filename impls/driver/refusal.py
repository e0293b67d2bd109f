"""A start that is refused leaves the checkpoint as it was: not there, if it has made it."""

import contextlib
from collections.abc import Iterator

from impls.closing import closed_on_error
from impls.driver.checkpoint import MADE, Checkpoint
from impls.errors import UsageError


@contextlib.contextmanager
def undone_when_refused(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """Closes what it gives when the `with` statement fails; what a refused first start has made is deleted.

    Behind a plan there may be state with the query's identity, and nothing is deleted.
    """
    with closed_on_error(checkpoint):
        try:
            yield checkpoint
        except UsageError:
            if checkpoint.generation == 1 and not checkpoint.read("plan"):
                _delete(checkpoint)
            raise


def _delete(checkpoint: Checkpoint) -> None:
    """Deletes the files of an opening; folders only if nothing else is in them."""
    for name in MADE:
        (checkpoint.own / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        checkpoint.own.rmdir()
        checkpoint.folder.rmdir()

"""Where a query's bins can be restored from."""

from dataclasses import dataclass

from impls.durability.files import Files
from impls.durability.schedule import Manifest, read_manifest
from impls.errors import StateError, UsageError
from impls.operators.base import Operator


@dataclass(frozen=True)
class RestoreSource:
    """Where a query's bins can be restored from: its durable files, and what its operator creates.

    Attributes:
        pinned: the manifest to go by, whatever that of the files has become.
    """

    files: Files
    query: str
    bins: int
    operator: Operator
    pinned: Manifest | None = None

    def manifest(self) -> Manifest:
        """Returns the snapshots to begin with; raises StateError when their list cannot be read."""
        try:
            return self.pinned or read_manifest(self.files, self.query, self.bins)
        except UsageError as error:
            raise StateError(str(error)) from error

    def usable_from(self) -> int:
        """Returns the oldest epoch that a bin of `RestoreRequest.have` may be at: the changelog has all later changes.

        Raises StateError as `manifest` does.
        """
        return int(self.manifest().base.min())

"""Code in a checkpoint: of the pipeline's versions, and what the query's owner offers for changes to come."""

import hashlib
import pickle
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError
from impls.operators.base import Operator
from impls.operators.steps import Step
from impls.protocol.changing import Changing
from impls.protocol.versions import Code, needed

_NAME_DIGITS = 64
_NAME = re.compile(rf"[0-9a-f]{{{_NAME_DIGITS}}}")
_CODE_BYTES_MAX = 1 << 20  # it goes to every worker in every epoch that needs it


class Codes:
    """The files of a folder, named by the SHA-256 of their content in hexadecimal digits."""

    def __init__(self, folder: Path, *, fsync: bool = False):
        self._folder, self._fsync = folder, fsync
        self._read: dict[str, bytes] = {}

    def keep(self, raw: bytes) -> str:
        """Makes code durable and returns its name; raises UsageError for more than 1 MiB."""
        if len(raw) > _CODE_BYTES_MAX:
            raise UsageError(
                f"The code of the version takes {len(raw):,} bytes, more than {_CODE_BYTES_MAX:,}: read large data "
                "from a file that the operator names."
            )
        name = hashlib.sha256(raw).hexdigest()
        if not self._is_whole(name):
            self._write(name, raw)
        self._read[name] = raw
        return name

    def keep_as(self, name: str, raw: bytes) -> None:
        """Makes code durable under a name, unless there is some already."""
        if not (self._folder / name).exists():
            self._write(name, raw)

    def _write(self, name: str, raw: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        replace_bytes(self._folder / name, raw, fsync=self._fsync)

    def _is_whole(self, name: str) -> bool:
        try:
            return hashlib.sha256((self._folder / name).read_bytes()).hexdigest() == name
        except OSError:
            return False

    def get(self, name: str) -> bytes:
        """Returns code by its name; raises UsageError when it is missing or damaged."""
        if name not in self._read:
            path = self._folder / name
            try:
                raw = path.read_bytes()
            except OSError as error:
                raise UsageError(f"The code {path} of a version of the pipeline is missing: {ADVICE}.") from error
            if hashlib.sha256(raw).hexdigest() != name:
                raise UsageError(f"The code {path} of a version of the pipeline is damaged: {ADVICE}.")
            self._read[name] = raw
        return self._read[name]

    def of(self, changing: Changing, required: Iterable[int]) -> tuple[Code, ...]:
        """Returns all versions, those with their code that bins may need which are to run under the versions given."""
        versions = changing.known
        wanted = set(needed(set(required), {*changing.shape.tolist(), *changing.left}, versions))
        return tuple(
            Code(version, self.get(version.code) if number in wanted else b"") for number, version in versions.items()
        )


class Offer(NamedTuple):
    """Code for one change of a pipeline.

    Attributes:
        by: the operator or step.
        migrate: turns a value of the state before, see `impls.operators.pipeline.Contents`; None for no way.
        back: the way back.
    """

    by: Operator | Step
    migrate: Callable[..., Any] | None = None
    back: Callable[..., Any] | None = None


class Offers:
    """Code that changes may use: whoever may write to the checkpoint puts it there, and others name it.

    A change may be asked for over Kafka, by whoever may write to a topic. Only what is here is ever loaded.

    Args:
        own: this project's part of the checkpoint.
        fsync: whether what is offered must survive the host's failure.
    """

    def __init__(self, own: Path, *, fsync: bool = False):
        self._folder = own / "offered"
        self._codes = Codes(self._folder, fsync=fsync)

    def put(self, raw: bytes) -> str:
        """Makes an offer, pickled, durable and returns its name; raises UsageError for more than 1 MiB."""
        return self._codes.keep(raw)

    def load(self, name: Any) -> Offer:
        """Returns an offer.

        Raises:
            UsageError: nothing of this name is offered, or it is damaged or cannot be loaded.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not (self._folder / name).exists():
            raise UsageError(
                f"No code {str(name)[:_NAME_DIGITS]!r} is offered to this query: `./inv pipeline.offer` puts it into "
                "the checkpoint and says its name."
            )
        raw = self._codes.get(name)
        try:
            found = pickle.loads(raw)
        except Exception as error:
            raise UsageError(f"The code {name} cannot be loaded: {type(error).__name__}: {error}.") from error
        if not isinstance(found, Offer):
            kind = type(found).__name__
            raise UsageError(f"The code {name} is a {kind} and no offer: `./inv pipeline.offer` makes one.")
        return found

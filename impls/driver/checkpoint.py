"""The query's part of the checkpoint folder: identity, lock, generation, journals and their base."""

import fcntl
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from impls.driver.base import BASE, Base, entries_of, read_base, write_base
from impls.driver.journal import Journal, read_journal, replace_bytes
from impls.durability.files import sync_path
from impls.errors import ADVICE, UsageError
from impls.operators.base import Operator

FORMAT = 8
_RELEASED = 4  # version 0.1.0 and those before it wrote formats up to this one; no release wrote one behind it
BASE_EPOCHS = 500
BASE_BYTES = 16 << 20  # of journals; with 16,384 bins, all in use, that is 45 epochs
_OF_OPERATOR = "operator."
_JOURNALS = ("plan", "observed", "commands")
_OWN = "rescale"
_FORM = "form.json"
MADE = ("query.json", *(f"{name}.log" for name in _JOURNALS), "generation", "lock", _FORM)  # by a first start
_MORE = "journals.json"  # names of journals that not every query has


class Checkpoint:
    """Opens `<folder>/rescale` for one driver at a time; Spark's own files are in `<folder>/spark`.

    Every opening takes the next generation number, which plans and environments carry; lower ones are refused there.

    A folder goes on with equal `settings` and an operator of equal class and identity.

    With `fsync`, what is durable survives the failure of the host too.

    Attributes:
        folder, own: the checkpoint folder, and this project's part of it.
        query: identity of the query.
        settings: those that it was opened with.
        generation: number of this opening, from 1.
        fsync: whether what is durable survives the failure of the host.
        base: what the journals go on from, None if they reach back to the query's beginning.
        plans, observed, commands: the journals.

    Raises:
        UsageError: another driver holds the folder, it belongs to a query with other settings, or a file of it is
            missing or damaged.
    """

    def __init__(
        self, folder: str | Path, settings: Mapping[str, Any], *, operator: Operator | None = None, fsync: bool = False
    ):
        self.folder, self.settings, self.fsync = Path(folder).absolute(), settings, fsync
        self.own = self.folder / _OWN
        with ExitStack() as opened:
            opened.enter_context(locked(self.folder, fsync=fsync))
            self._check_complete()
            self.query = self._identity({**settings, **_identity_of(operator)})
            self.base = read_base(self.own, self.query)
            self.plans, self.observed, self.commands = (
                opened.enter_context(Journal(self.own / f"{name}.log", fsync=fsync)) for name in _JOURNALS
            )
            self._check_base()
            self.generation = self._next_generation()
            self._open = opened.pop_all()

    @property
    def spark(self) -> str:
        """Folder for Spark's checkpointLocation."""
        return str(self.folder / "spark")

    def read(self, name: str) -> list[dict[str, Any]]:
        """Returns the entries of the journal `plan`, `observed` or `commands` that the base does not contain."""
        return entries_of(self.own, name, self.base)

    def keep_form(self, form: Mapping[str, Any], key: str) -> None:
        """Notes how state is read, as `Operator.state_form` and `kind_of_key` say; raises StateError if that fails."""
        path, raw = self.own / _FORM, json.dumps({**form, "key": key}, indent=1).encode()
        if not path.exists() or path.read_bytes() != raw:
            replace_bytes(path, raw, fsync=self.fsync)

    @property
    def begins_own(self) -> bool:
        """Whether only the operator knows with what state bins begin; False where nothing says how state is read."""
        return (self.own / _FORM).exists() and form_of(self.folder)["begins"] == "own"

    def journal(self, name: str) -> Journal:
        """Opens one more journal, as durable as the others, which whoever asks for it closes; no base touches it.

        From then on the checkpoint is refused without it.
        """
        journal, more = Journal(self.own / f"{name}.log", fsync=self.fsync), _more_journals(self.own)
        if name not in more:
            replace_bytes(self.own / _MORE, json.dumps([*more, name]).encode(), fsync=self.fsync)
        return journal

    def log(self, name: str) -> tuple[Journal, list[dict[str, Any]]]:
        """Opens a log of its own beside the journals, which no base empties, and returns it with its entries.

        Raises UsageError when it is damaged.
        """
        return self.journal(name), read_journal(self.own / f"{name}.log")

    def needs_base(self, epoch: int) -> bool:
        """Returns whether the journals are long enough for a new base at the end of an epoch."""
        size = self.plans.size + self.observed.size + self.commands.size
        return epoch - (self.base.epoch if self.base else -1) >= BASE_EPOCHS or size >= BASE_BYTES

    def rebase(self, epoch: int, controller: dict[str, Any], plan: dict[str, Any]) -> None:
        """Makes the controller at the end of `epoch` the base, and empties the journals but for that epoch's plan.

        The controller must know every command in the journal. A crash between two steps leaves entries that `read`
        passes over.
        """
        base = Base(self.query, epoch, controller)
        write_base(self.own, base, fsync=self.fsync)
        self.base = base
        self.observed.rewrite([], base=epoch)
        self.plans.rewrite([plan], base=epoch)
        self.commands.rewrite([], base=epoch)

    def close(self) -> None:
        """Closes the journals and releases the folder."""
        self._open.close()

    @property
    def name(self) -> str:
        """The name of the query in Spark and on its metrics."""
        return f"rescale-{self.query[:8]}"

    def _check_complete(self) -> None:
        """Refuses a folder that has lost a file: anything in it was then written before the generation."""
        if (self.own / "generation").exists():
            names = ["query.json", *(f"{name}.log" for name in (*_JOURNALS, *_more_journals(self.own)))]
            missing = [name for name in names if not (self.own / name).exists()]
        else:
            missing = ["generation"] if any(read_journal(self.own / f"{name}.log") for name in _JOURNALS) else []
        if missing:
            raise UsageError(f"The file {self.own / missing[0]} is missing: {ADVICE}.")

    def _check_base(self) -> None:
        needed = max(journal.base for journal in (self.plans, self.observed, self.commands))
        found = self.base.epoch if self.base else -1
        if needed > found:
            what = "is missing" if self.base is None else f"is of epoch {found}, older than the journals' {needed}"
            raise UsageError(f"The file {self.own / BASE} {what}: {ADVICE}.")

    def _identity(self, settings: dict[str, Any]) -> str:
        path = self.own / "query.json"
        if not path.exists():
            data = {"format": FORMAT, "query": uuid.uuid4().hex, "settings": settings}
            replace_bytes(path, json.dumps(data, indent=1).encode(), fsync=self.fsync)
            return str(data["query"])
        query, stored = settings_of(self.folder)
        for name in (*settings, *(name for name in stored if name.startswith(_OF_OPERATOR) and "operator" in settings)):
            if stored.get(name) != settings.get(name):
                raise UsageError(
                    f"The checkpoint {self.folder} was made with {name}={stored.get(name)}, not {settings.get(name)}: "
                    "use the same setting or another checkpoint."
                )
        return query

    def _next_generation(self) -> int:
        path = self.own / "generation"
        try:
            generation = int(path.read_text()) + 1 if path.exists() else 1
        except ValueError as error:
            raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
        replace_bytes(path, str(generation).encode(), fsync=self.fsync)
        return generation


def locked(folder: Path, *, fsync: bool = False) -> IO[str]:
    """Makes the folder of a query's checkpoint, and holds it for this process until what it returns is closed.

    Raises UsageError when another driver holds it, or it cannot be written.
    """
    own = folder / _OWN
    try:
        own.mkdir(parents=True, exist_ok=True)
        if fsync:
            for each in (own, folder, folder.parent):
                sync_path(each)
        lock = (own / "lock").open("a+")
    except OSError as error:
        raise UsageError(f"The checkpoint {folder} cannot be written: {error}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise UsageError(
            f"The checkpoint {folder} is in use by another driver (process {holder}): stop it first."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def settings_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """Returns (identity, settings) of the query that has begun with a checkpoint.

    Raises UsageError where none has, or the file that says so is damaged or of another format.
    """
    try:
        data = json.loads(_known(folder).read_text())
        query, settings, version = str(data["query"]), dict(data["settings"]), data["format"]
    except OSError as error:
        raise UsageError(f"There is no checkpoint of a query in {folder}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The checkpoint {folder} is corrupt: query.json is damaged: {ADVICE}.") from error
    if version != FORMAT:
        raise UsageError(_of_another_version(folder, version))
    return query, settings


def form_of(folder: Path) -> dict[str, Any]:
    """Returns how the state of a checkpoint's query is read; raises UsageError when nothing says so, or is damaged."""
    path = Path(folder, _OWN, _FORM)
    try:
        form = dict(json.loads(path.read_bytes()))
    except FileNotFoundError as error:
        raise UsageError(f"There is no {path}, which says how state is read: start the query once.") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
    if not {"values", "begins", "key"} <= form.keys():
        raise UsageError(f"The file {path} is damaged: {ADVICE}.")
    return form


def is_begun(folder: Path) -> bool:
    """Returns whether a query has begun with a checkpoint."""
    return _known(folder).exists()


def check_single(folder: Path) -> None:
    """Raises UsageError for the checkpoint of a chain, whose stages have one each."""
    stages = sorted(path.parents[1].name for path in folder.glob("*/rescale/query.json"))
    if stages and not is_begun(folder):
        raise UsageError(f"{folder} is the checkpoint of a chain: name that of a stage, {' or '.join(stages)} in it.")


def query_of(folder: Path) -> str:
    """Returns the identity of the query that has begun with a checkpoint; raises OSError where none has."""
    return str(json.loads(_known(folder).read_text())["query"])


def _known(folder: Path) -> Path:
    return Path(folder, _OWN, "query.json")


def _of_another_version(folder: Path, version: object) -> str:
    """Returns why a checkpoint of another format is refused, and what to do about it."""
    found = f"The checkpoint {folder} has format {version}; this version reads {FORMAT}"
    if not isinstance(version, int) or version > FORMAT:
        return f"{found}."
    finish = "finish the query with rescale-bench 0.1.0, or " if version <= _RELEASED else ""
    return f"{found}: {finish}start it with a new checkpoint and state folder."


def _more_journals(folder: Path) -> list[str]:
    """Returns the names of the journals that a query has besides those that every one has."""
    try:
        found = json.loads((folder / _MORE).read_bytes()) if (folder / _MORE).exists() else []
        return [str(name) for name in found]
    except (ValueError, TypeError) as error:
        raise UsageError(f"The file {folder / _MORE} is damaged: {ADVICE}.") from error


def _identity_of(operator: Operator | None) -> dict[str, Any]:
    """Returns the settings of an operator's class and parameters, as JSON gives them back."""
    if operator is None:
        return {}
    parameters = {f"{_OF_OPERATOR}{name}": value for name, value in operator.identity().items()}
    return dict(json.loads(json.dumps({"operator": type(operator.keyed).__name__, **parameters})))

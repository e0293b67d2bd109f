"""Changes of a running query's pipeline from another process: what the tasks of `pipeline` do."""

import hashlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.table import Table

from impls.driver.codes import Offer, Offers
from impls.driver.control import ask
from impls.errors import UsageError
from impls.operators import Operator
from impls.operators.steps import Step
from impls.spark.shipping import pickled_offer

_POLL_S = 0.1
_ANY = (Operator, Step)


def show(checkpoint: str) -> int:
    """Prints the versions of a query's pipeline and returns the exit code."""
    table = Table("version", "change", "steps", "operator", "bins", box=None)
    for version in ask(checkpoint, {"do": "pipeline"})["versions"]:
        steps = ", ".join(version["steps"]) or "-"
        table.add_row(str(version["version"]), version["label"], steps, version["operator"], str(version["bins"]))
    Console().print(table)
    return 0


def replace(*, checkpoint: str, wait: int, **what: Any) -> int:
    """Replaces an operator or a step, and returns the exit code: 1 when the query has refused it."""
    return _carry_out(checkpoint, request_of("replace", _put(checkpoint, _pickled(_ANY, **what)), **what), wait)


def insert(*, checkpoint: str, wait: int, **what: Any) -> int:
    """Puts a step in, and returns the exit code."""
    return _carry_out(checkpoint, request_of("insert", _put(checkpoint, _pickled((Step,), **what)), **what), wait)


def remove(*, checkpoint: str, wait: int, name: str) -> int:
    """Takes a step out, and returns the exit code."""
    return _carry_out(checkpoint, request_of("remove", name=name), wait)


def offer(*, checkpoint: Sequence[str], **what: Any) -> int:
    """Puts code into checkpoints, prints its name there, and returns the exit code."""
    raw = _pickled(_ANY, **what)
    (name,) = {_put(each, raw) for each in checkpoint}
    sys.stdout.write(f"{name}\n")
    return 0


def request_of(do: str, offered: str | None = None, **what: Any) -> dict[str, Any]:
    """Returns a change as a query takes it, from the control channel or a control topic.

    Args:
        do: "replace", "insert" or "remove".
        offered: the name of the code to replace by or insert, in the query's checkpoint.
        **what: lazy, budget and repairs of a replacement; before of an insertion; name of the step to remove.
    """
    match do:
        case "replace":
            budget = {} if what["budget"] is None else {"budget_bytes": what["budget"]}
            return {"do": do, "offered": offered, "lazy": what["lazy"], "repairs": what.get("repairs") or 0, **budget}
        case "insert":
            return {"do": do, "offered": offered, "before": what["before"]}
    return {"do": do, "name": what["name"]}


def _pickled(
    kinds: tuple[type[Any], ...], *, code: str, migrate: str | None = None, back: str | None = None, **_: Any
) -> bytes:
    """Returns code as an offer has it; raises UsageError when it cannot be loaded, or is of another kind.

    Args:
        kinds: what it may be.
        code: FILE:NAME.
        migrate: name of a function in that file.
        back: the same of the way back.
    """
    ways = (_function(code, name) if name else None for name in (migrate, back))
    return pickled_offer(Offer(_named(code, kinds), *ways))


def _put(checkpoint: str, raw: bytes) -> str:
    """Puts code into a checkpoint and returns its name there; raises UsageError where no query has one."""
    own = Path(checkpoint) / "rescale"
    if not own.is_dir():
        raise UsageError(f"There is no query's checkpoint in {checkpoint}.")
    return Offers(own, fsync=True).put(raw)


def _carry_out(checkpoint: str, request: dict[str, Any], wait: int) -> int:
    id_ = ask(checkpoint, request)["id"]
    answer = ask(checkpoint, {"do": "change", "id": id_})
    end = time.monotonic() + wait
    while answer["state"] not in {"done", "refused"} and time.monotonic() < end:
        time.sleep(_POLL_S)
        answer = ask(checkpoint, {"do": "change", "id": id_})
    why = f": {answer['why']}" if answer["why"] else "."
    sys.stdout.write(f"Change {id_} (version {answer['version']}): {answer['state']}{why}\n")
    return 1 if answer["state"] == "refused" else 0


def _named(code: str, kinds: tuple[type[Any], ...]) -> Any:
    """Returns the operator or step that FILE:NAME names; a class without arguments stands for its instance."""
    value = _attribute(code)
    if isinstance(value, type):
        value = value()
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__.lower() for kind in kinds)
        raise UsageError(f"{code} is a {type(value).__name__} and no {wanted}.")
    return value


def _function(code: str, name: str) -> Any:
    found = _attribute(f"{code.rpartition(':')[0]}:{name}")
    if not callable(found):
        raise UsageError(f"{name} in {code.rpartition(':')[0]} is no function.")
    return found


def _attribute(code: str) -> Any:
    file, _, name = code.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise UsageError(f"{code} names no file and name in it: give it as in rules.py:limit.")
    module = _module_of(path)
    if name not in vars(module):
        raise UsageError(f"{file} has no {name!r}.")
    return vars(module)[name]


def _module_of(path: Path) -> ModuleType:
    """Returns a file as a module, the same one as long as path and content stay."""
    content = path.read_bytes()
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + content).hexdigest()[:16]
    module_name = f"_changed_{path.stem}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    loader = SourceFileLoader(module_name, str(path))
    spec = importlib.util.spec_from_loader(module_name, loader)
    assert spec is not None, "there is a loader"
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        exec(loader.source_to_code(content, str(path)), vars(module))  # what was read, not a stale cache
    except Exception as error:
        del sys.modules[module_name]
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}.") from error
    return module

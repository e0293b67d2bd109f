"""The file that says how a query's state is read by whoever has not its operator; see `impls.reading`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError

FORM = "form.json"


def keep_form(own: Path, form: Mapping[str, Any], *, fsync: bool = False) -> None:
    """Writes the form of a query's state beside its journals, unless it is there; raises StateError if it cannot."""
    path, raw = own / FORM, json.dumps(form, indent=1).encode()
    if not path.exists() or path.read_bytes() != raw:
        replace_bytes(path, raw, fsync=fsync)


def read_form(own: Path) -> dict[str, Any]:
    """Returns the form of a query's state; raises UsageError when there is none or it is damaged."""
    path = own / FORM
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"There is no {path}, which says how state is read: start the query once.") from error
    except ValueError as error:
        raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
    if not isinstance(found, dict) or not {"values", "begins", "key"} <= found.keys():
        raise UsageError(f"The file {path} is damaged: {ADVICE}.")
    return found

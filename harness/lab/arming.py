"""The armed fault: the file that `impls.faults` looks for, and what it says when the fault has fired."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from harness.files import read_lines, write_json

__all__ = ["VARIABLE", "Arming"]

VARIABLE = "RESCALE_FAULTS"


class Arming:
    """arm() one fault at a time; fired() says when it happened."""

    def __init__(self, file: Path):
        self.file = file

    def arm(
        self,
        name: str,
        *,
        victim: str,
        point: str,
        pids: Mapping[str, int],
        action: Literal["kill", "stop"] = "kill",
        conditions: Mapping[str, int | bool] | None = None,
    ) -> None:
        """Arms a fault; `conditions` are worker, migrating and after_epoch of `impls.faults`."""
        armed: dict[str, Any] = {"id": name, "victim": victim, "point": point, "pids": dict(pids), "action": action}
        write_json(self.file, {**armed, **(conditions or {})})

    def disarm(self) -> None:
        """Takes an armed fault back."""
        self.file.unlink(missing_ok=True)

    def fired(self, name: str) -> dict[str, Any] | None:
        """Returns what a fault wrote when it fired (at_us, pid and its context), None if it has not."""
        lines = read_lines(self.file.with_name(f"{self.file.name}.fired"))
        return next((line for line in lines if line["id"] == name), None)

"""Versions of a query's pipeline, and which of them each bin runs under, epoch by epoch. Pure.

A change of the pipeline is tried on records of one epoch whose effects are thrown away, then bins switch to the new
version: all at once, or within a budget of bytes where their state changes its shape. It is a version of epoch-based
reconfiguration (Bartnik et al., BTW 2019), with bins for its operators' instances; function updates that state has to
follow go bin by bin, as Megaphone's moves do (Hoffmann et al., VLDB 2019, section 3).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.protocol.arrays import array_of, text_of

BUDGET_BYTES = 256 << 10

Direction = Literal["migrate", "back"]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the pipeline; number 0 is the one the query began with, which has no entry.

    Attributes:
        number: from 1 on.
        parent: the version that it replaces.
        code: SHA-256 of its content.
        label: what it changes.
        migrates: state changes its shape with it; `returns`: there is a way back.
        lazy: state is turned when something touches its bin, and else within the budget; not bin by bin.
        budget_bytes: most bytes of state that each worker turns in an epoch without need, one bin at least.
        repairs: a refused version at which bins had to stay: their state is taken for one of this version's shape.
    """

    number: int
    parent: int
    code: str
    label: str
    migrates: bool = False
    returns: bool = False
    lazy: bool = False
    budget_bytes: int = BUDGET_BYTES
    repairs: int = 0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Version":
        """Reads a version's fields; until 2026-11 `repairs` was called `mends`."""
        return cls(**{"repairs" if name == "mends" else name: value for name, value in fields.items()})


@dataclass(frozen=True, slots=True)
class Change:
    """A request that the pipeline become `version`, from epoch `from_epoch` on."""

    id: str
    version: Version
    from_epoch: int

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary, a line of the journal of commands."""
        return {"kind": "change", "id": self.id, "from_epoch": self.from_epoch, "version": asdict(self.version)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Change":
        """Reads what `to_json` wrote."""
        return cls(data["id"], Version.from_json(data["version"]), data["from_epoch"])


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a version at a worker.

    Attributes:
        version: its number.
        text: a sentence.
        bin: the bin whose state the version's `back` has failed on, which keeps its shape; None for another failure.
    """

    version: int
    text: str
    bin: int | None = None


@dataclass(frozen=True)
class Versions:
    """What an epoch's plan says about versions.

    Attributes:
        required: int32, shape (B,): the version under which each bin runs.
        refits: bins whose state takes the shape of that version now, also if nothing touches them.
        trial: a version to be tried on records whose effects are thrown away, 0 for none.
        guarded: the version that a worker gives up for its parent when it fails, 0 for none.
    """

    required: NDArray[np.int32]
    refits: tuple[int, ...] = ()
    trial: int = 0
    guarded: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary; versions are one number where all bins have the same."""
        first = int(self.required[0])
        same = bool((self.required == first).all())
        required = first if same else text_of(self.required, "<u4")
        rest = {"refits": list(self.refits), "trial": self.trial, "guarded": self.guarded}
        return {"required": required, "bins": len(self.required), **{n: v for n, v in rest.items() if v}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Versions":
        """Reads what `to_json` wrote."""
        given = data["required"]
        if isinstance(given, int):
            required = np.full(data["bins"], given, np.int32)
        else:
            required = array_of(given, "<u4").astype(np.int32)
        return cls(required, tuple(data.get("refits", ())), data.get("trial", 0), data.get("guarded", 0))


@dataclass(frozen=True)
class Code:
    """A version with its content, as `impls.operators.pipeline.Contents` pickled."""

    version: Version
    raw: bytes


def shape_of(number: int, versions: Mapping[int, Version]) -> int:
    """Returns the shape of state under a version: the number of the last version that changed it, 0 for the first."""
    while number and not versions[number].migrates:
        number = versions[number].parent
    return number


def path_between(source: int, target: int, versions: Mapping[int, Version]) -> list[tuple[int, Direction]]:
    """Returns by which versions, and in which direction, state of one shape becomes state of another."""
    if source == target:
        return []
    up, down = _shapes(_repaired(source, versions), versions), _shapes(target, versions)
    common = max(set(up) & set(down))
    back: list[tuple[int, Direction]] = [(number, "back") for number in up if number > common]
    there: list[tuple[int, Direction]] = [(number, "migrate") for number in reversed(down) if number > common]
    return back + there


def way_back(source: int, target: int, versions: Mapping[int, Version]) -> bool:
    """Returns whether state of one shape can become state of another: it can always go on, but not always back."""
    path = path_between(source, target, versions)
    return all(versions[number].returns for number, direction in path if direction == "back")


def repaired_by(version: Version, versions: Mapping[int, Version]) -> list[int]:
    """Returns the versions that one repairs: the one it names, those which that one was to repair, and so on."""
    found = []
    while version.repairs:
        found.append(version.repairs)
        version = versions[version.repairs]
    return found


def _repaired(shape: int, versions: Mapping[int, Version]) -> int:
    """Returns the shape that a state is taken for: that of the last version that repairs the one it stayed at."""
    while later := [version.number for version in versions.values() if shape and version.repairs == shape]:
        shape = max(later)
    return shape


def _shapes(shape: int, versions: Mapping[int, Version]) -> Sequence[int]:
    """Returns a shape and those it came from, down to 0."""
    found = [shape]
    while found[-1]:
        found.append(shape_of(versions[found[-1]].parent, versions))
    return found


def needed(required: Iterable[int], shapes: Iterable[int], versions: Mapping[int, Version]) -> list[int]:
    """Returns the versions whose code an epoch may need: those required, their parents, of shapes, and between them."""
    wanted = {number for number in required if number}
    wanted |= {versions[number].parent for number in wanted}
    targets = {shape_of(number, versions) for number in wanted | {0}}
    for source in set(shapes) | targets:
        for target in targets:
            wanted |= {number for number, _ in path_between(source, target, versions)}
    wanted |= {*shapes}  # a bin whose state cannot go back stays at the version of its shape
    wanted |= {versions[number].parent for number in wanted if number}  # state is read as its parent wrote it
    return sorted(wanted - {0})

"""A change of the pipeline from its request to its end: tried, then bin by bin or at once, or taken back. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.protocol.arrays import arrays_from_json, arrays_to_json
from impls.protocol.events import ChangeBegun, ChangeDone, ChangeRefused, Event
from impls.protocol.versions import Change, Version, Versions, repaired_by, shape_of, way_back
from impls.protocol.view import Observation

TRIAL_EPOCHS = 10
PROOF_EPOCHS = 10
_OUTCOMES = 1_000
_ARRAYS = {"required": "<i4", "shape": "<i4"}

Phase = Literal["trial", "switch", "proof", "back"]


@dataclass(frozen=True, slots=True)
class Bins:
    """What is known of the bins when an epoch is planned.

    Attributes:
        ready: bool, shape (B,): the bin's state is where its records go, and nothing of it waits.
        location: int32, shape (B,): worker that has the bin.
        size: int64, shape (B,): bytes of its state.
        calm: no query is to be stopped before the epoch, and no bin runs at two workers.
    """

    ready: NDArray[np.bool_]
    location: NDArray[np.int32]
    size: NDArray[np.int64]
    calm: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a change has come: "waits", "trial", "switch", "back", "done" or "refused", and why."""

    state: str
    version: int
    why: str = ""


class Changing:
    """Per epoch: accept() any changes, activate(), plan(), hold() the plan that holds, observe().

    A change is tried in up to 10 epochs, until records were there to try it on. If that fails, it is refused. Then
    every bin that is ready switches; where state changes its shape and the change is not lazy, only as many as the
    budget allows. A failure until 10 epochs after that takes all of it back, as far as state can go back: bins without
    a way back, or on whose state `back` fails, stay at the version that gave it its shape, and the outcome says so.

    Attributes:
        versions: all there have been, by number.
        required: int32, shape (B,): the version under which each bin runs.
        shape: int32, shape (B,): that of each bin's state, see `shape_of`.
        left: the shapes that there were before the last epoch observed, which may be run again.
    """

    def __init__(self, bins: int):
        self.versions: dict[int, Version] = {}
        self.required, self.shape = np.zeros(bins, np.int32), np.zeros(bins, np.int32)
        self.left: list[int] = []
        self._pending: list[Change] = []
        self._current: Change | None = None
        self._phase: Phase = "trial"
        self._epochs = 0  # in the phase
        self._why = ""
        self._stuck: set[int] = set()  # bins on whose state the `back` of the current change has failed
        self._repairing: list[int] = []  # versions that repair another and have begun
        self._outcomes: dict[str, Outcome] = {}
        self._events: list[Event] = []

    @property
    def known(self) -> dict[int, Version]:
        """The versions by number; one that is to repair another counts when it has begun."""
        return {number: v for number, v in self.versions.items() if not v.repairs or number in self._repairing}

    @property
    def latest(self) -> int:
        """The version that the pipeline has, or will have when the changes under way are done."""
        if self._pending:
            return self._pending[-1].version.number
        if self._current is not None and self._phase != "back":
            return self._current.version.number
        return int(np.bincount(self.required).argmax())

    @property
    def active(self) -> bool:
        """Whether epochs should follow each other quickly: a change waits or is under way."""
        return bool(self._pending) or (self._current is not None and self._phase != "proof")

    @property
    def pending(self) -> list[Change]:
        """Changes that wait for those before them."""
        return list(self._pending)

    def outcome(self, id_: str) -> Outcome | None:
        """Returns how far a change has come, None for one that is not known."""
        if self._current is not None and self._current.id == id_:
            state = "done" if self._phase == "proof" else self._phase
            return Outcome(state, self._current.version.number, self._why)
        waiting = {change.id: change.version.number for change in self._pending}
        return Outcome("waits", waiting[id_]) if id_ in waiting else self._outcomes.get(id_)

    def accept(self, change: Change) -> None:
        """Takes a change that holds from its `from_epoch` on."""
        self.versions[change.version.number] = change.version
        self._pending.append(change)

    def plan(self, bins: Bins) -> Versions | None:
        """Returns what the epoch's plan says, None as long as there was no change."""
        if not self.versions:
            return None
        if self._current is None:
            return Versions(self.required.copy())
        version = self._current.version
        guarded = 0 if self._phase == "trial" else version.number  # until no bin runs under it that can go back
        if not bins.calm:
            return Versions(self.required.copy(), guarded=guarded)
        if self._phase == "trial":
            return Versions(self.required.copy(), trial=version.number)
        if self._phase == "back":
            return self._towards(version.parent, version, bins, self._to_go_back(version), guarded=guarded)
        rising = self.required != version.number
        return self._towards(version.number, version, bins, rising, guarded=guarded)

    def activate(self, epoch: int) -> None:
        """Begins the next change; one that is only being proved makes way for it."""
        waits = self._pending and self._pending[0].from_epoch <= epoch
        if not waits or (self._current is not None and self._phase != "proof"):
            return
        if self._current is not None:
            self._end("done")
        self._current, self._phase, self._epochs, self._why = self._pending.pop(0), "trial", 0, ""
        version = self._current.version
        if why := self._obstacle(version):
            self._refuse(epoch, why, rolled_back=False)
            return
        self._repairing += [version.number] if version.repairs else []
        self._events.append(ChangeBegun(self._current.id, version.label, epoch, version.number))

    def _obstacle(self, version: Version) -> str:
        """Returns why a change cannot begin, "" when it can: its bins are to come from the parent, and to go back."""
        others = self._others(version)
        refused = {outcome.version for outcome in self._outcomes.values() if outcome.state == "refused"}
        if len(others) and version.parent in refused:
            return f"it builds on version {version.parent}, which was refused"
        return self._stay_of(others) if len(others) else ""

    def _others(self, version: Version) -> NDArray[np.intp]:
        """Returns the bins that run neither under a version's parent nor under one that it repairs."""
        return np.flatnonzero(~np.isin(self.required, [version.parent, *repaired_by(version, self.versions)]))

    def _stay_of(self, others: NDArray[np.intp]) -> str:
        bin_, number = int(others[0]), int(self.required[others[0]])
        named = f"bin {bin_}" + " and others" * (len(others) > 1)
        stay = f"{named} had to stay at version {number} ({len(others)} of {len(self.required)} bins)"
        return f"{stay}: replace it again, with repairs={number}"

    def _returning(self, version: Version) -> NDArray[np.bool_]:
        """Returns the bins that run under a version and can go back to its parent."""
        target, known = shape_of(version.parent, self.versions), self.known
        lasting = [shape for shape in np.unique(self.shape).tolist() if not way_back(shape, target, known)]
        there: NDArray[np.bool_] = (self.required == version.number) & ~np.isin(self.shape, lasting)
        there[list(self._stuck)] = False
        return there

    def _to_go_back(self, version: Version) -> NDArray[np.bool_]:
        """Returns the bins that are to go back: those of `_returning`, and those of which only the state has not."""
        target = shape_of(version.parent, self.versions)
        there: NDArray[np.bool_] = (self.required == version.parent) & (self.shape != target)
        return self._returning(version) | there

    def _stay(self, version: Version) -> None:
        """Leaves bins whose state cannot go back to a version's parent at the version that gave it its shape."""
        there = (self.required == version.number) & ~self._returning(version)
        self.required = np.where(there, self.shape, self.required).astype(np.int32)

    def _towards(
        self, number: int, version: Version, bins: Bins, rising: NDArray[np.bool_], *, guarded: int
    ) -> Versions:
        """Returns a plan in which bins that rise switch to a version, all or within the budget."""
        required, shape = self.required.copy(), shape_of(number, self.versions)
        ready = rising & bins.ready
        if version.migrates and not version.lazy:
            refits = _within_budget(np.flatnonzero(ready), bins, version.budget_bytes)
            required[refits] = number
            return Versions(required, tuple(refits), guarded=guarded)
        required[ready] = number
        late = (required == number) & (self.shape != shape) & bins.ready
        refits = _within_budget(np.flatnonzero(late), bins, version.budget_bytes)
        return Versions(required, tuple(refits), guarded=guarded)

    def hold(self, versions: Versions | None) -> None:
        """Takes over what a plan that holds says."""
        if versions is not None:
            self.required = versions.required.copy()

    def observe(self, seen: Observation) -> list[Event]:
        """Takes in what an epoch did: states that were turned, records tried, failures of versions."""
        self.left, known = np.unique(self.shape).tolist(), self.known
        for bin_, shape in seen.turned:
            self.shape[bin_] = shape
            self._stuck.discard(bin_)  # `back` did not fail this time
            if not way_back(shape, shape_of(int(self.required[bin_]), self.versions), known):
                self.required[bin_] = shape  # it took the shape after the last report, before the order to go back came
        if self._current is not None:
            number = self._current.version.number
            failed = [failure for failure in seen.failed if failure.version == number]
            self._keep([failure.bin for failure in failed if failure.bin is not None])
            self._advance(seen.epoch, seen.tried, [failure.text for failure in failed])
        events, self._events = self._events, []
        return events

    def _keep(self, bins: list[int]) -> None:
        """Leaves bins on whose state `back` has failed at the version that gave it its shape."""
        self._stuck |= set(bins)
        self.required[bins] = self.shape[bins]

    def _advance(self, epoch: int, tried: int, failed: list[str]) -> None:
        assert self._current is not None, "a change is under way"
        version, self._epochs = self._current.version, self._epochs + 1
        if failed and self._phase == "trial":
            self._refuse(epoch, failed[0], rolled_back=False)
        elif failed and self._phase != "back":
            self._phase, self._why = "back", failed[0]
            self._stay(version)
        elif self._phase == "trial" and (tried or self._epochs >= TRIAL_EPOCHS):
            self._phase, self._epochs = "switch", 0
        elif self._phase == "switch" and self._holds(version.number):
            self._events.append(ChangeDone(self._current.id, epoch, version.number))
            self._phase, self._epochs = "proof", 0
        elif self._phase == "proof" and self._epochs >= PROOF_EPOCHS:
            self._end("done")
        if self._current is not None and self._phase == "back" and not self._to_go_back(version).any():
            others = self._others(version)
            why = f"{self._why.rstrip('.')}; {self._stay_of(others)}" if len(others) else self._why
            self._refuse(epoch, why, rolled_back=True)

    def _holds(self, number: int) -> bool:
        return bool((self.required == number).all() and (self.shape == shape_of(number, self.versions)).all())

    def _refuse(self, epoch: int, why: str, *, rolled_back: bool) -> None:
        assert self._current is not None, "a change is under way"
        self._why = why
        number, id_ = self._current.version.number, self._current.id
        self._end("refused")
        self._events.append(ChangeRefused(id_, epoch, number, why, rolled_back=rolled_back))

    def _end(self, state: str) -> None:
        assert self._current is not None, "a change is under way"
        self._outcomes[self._current.id] = Outcome(state, self._current.version.number, self._why)
        while len(self._outcomes) > _OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]
        self._current, self._stuck = None, set()

    def to_json(self) -> dict[str, Any]:
        """Returns all that later epochs depend on, ready for JSON."""
        return {
            **arrays_to_json(self, _ARRAYS),
            "left": self.left,
            "versions": [asdict(version) for version in self.versions.values()],
            "pending": [change.to_json() for change in self._pending],
            "current": self._current.to_json() if self._current else None,
            "phase": [self._phase, self._epochs, self._why],
            "repairing": list(self._repairing),
            "stuck": sorted(self._stuck),
            "outcomes": {id_: asdict(outcome) for id_, outcome in self._outcomes.items()},
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Takes over what `to_json` of another one gave; raises KeyError or ValueError for anything else."""
        for name, array in arrays_from_json(data, _ARRAYS, len(self.required)).items():
            setattr(self, name, array.astype(np.int32))
        self.left = list(data["left"])
        self.versions = {fields["number"]: Version.from_json(fields) for fields in data["versions"]}
        self._pending = [Change.from_json(change) for change in data["pending"]]
        self._current = Change.from_json(data["current"]) if data["current"] else None
        self._phase, self._epochs, self._why = data["phase"]
        self._repairing = list(data["repairing"])
        self._stuck = set(data["stuck"])
        self._outcomes = {id_: Outcome(**fields) for id_, fields in data["outcomes"].items()}


def _within_budget(candidates: NDArray[np.intp], bins: Bins, budget: int) -> list[int]:
    """Returns bins, in order, whose states fit each worker's budget, one at least."""
    left: dict[int, int] = {}
    chosen = []
    for bin_ in candidates.tolist():
        worker, size = int(bins.location[bin_]), int(bins.size[bin_])
        room = left.get(worker)
        if room is None or size <= room:
            chosen.append(bin_)
            left[worker] = max(0, (budget if room is None else room) - size)
    return chosen

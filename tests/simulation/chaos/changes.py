"""Changes of a simulated query's pipeline: what the seed asks for, and that each comes to the end that it can have."""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from chaos.fibers import Killed
from chaos.recipes import ALL, RARE, Mark, Recipe, Recipes, Reshape, Same, Some
from chaos.requests import Asked
from chaos.violation import require
from impls.driver.driver import Driver
from impls.driver.pipeline import Changeable, PipelineChanges
from impls.operators import Filter, Operator, ResultMap
from impls.protocol.changing import Changing
from impls.protocol.events import ChangeDone, ChangeRefused


class _Handle(Changeable):
    def __init__(self, driver: Driver, first: Operator, columns: tuple[str, ...]):
        super().__init__()
        self.changes = PipelineChanges(driver, first, pickle.dumps, columns)

    def stop(self) -> None:
        """Does nothing: the simulation ends its drivers."""


class Asking:
    """Asks for the changes of a run, and keeps the recipes of all versions.

    Args:
        asked: the changes.
        first: version 0.
        kind: "chain", "counts", or "timed".
        recipes: takes the versions.
        stacked: a change may follow on one that is bound to fail, while that is being tried.
    """

    def __init__(self, asked: Iterable[Asked], first: Operator, kind: str, recipes: Recipes, *, stacked: bool = True):
        self._stacked = stacked
        self._left, self._first, self._kind, self.recipes = list(asked), first, kind, recipes
        self._columns = () if kind == "counts" else first.columns
        self._ended: dict[int, type[Any]] = {}

    def ask(self, driver: Driver, epoch: int) -> bool:
        """Asks for what is due; returns False when the driver has died behind one."""
        while self._left and self._left[0][0] <= epoch:
            changing = driver.controller.changing
            latest = self.recipes[changing.latest]
            stacked = self._stacked and latest.fails == ALL and _tried(changing) == latest.number
            if latest.fails and not stacked:
                return True  # what follows would fail with it: it has to be taken back first
            _, kind, value = self._left.pop(0)
            number, stuck = 1 + max(changing.versions, default=0), self._stuck(changing)
            if stuck and not changing.active and value & 256:
                recipe, request = self._repairing(stuck[-1], number, value)
            else:
                recipe, request = self._recipe(latest, number, kind, value)
            self.recipes[recipe.number] = recipe
            try:
                request(_Handle(driver, self._first, self._columns))
            except Killed:
                return False
        return True

    def _recipe(self, latest: Recipe, number: int, kind: str, value: int) -> tuple[Recipe, Any]:
        """Returns a version as the simulation knows it, and how to ask for it."""
        if self._kind != "chain":
            kind = _plain(self._kind, kind)
        name, names = f"step {number}", [name for name, _ in latest.steps]
        chain, made = latest.chain, latest.next
        match kind:
            case "remove" if names:
                gone = names[value % len(names)]
                steps = tuple(step for step in latest.steps if step[0] != gone)
                return made(number, steps=steps), lambda handle: handle.remove(gone)
            case "replace" | "rare" | "fails" if self._kind == "chain":
                fails = {"rare": RARE, "fails": ALL}.get(kind, 0)
                after = type(chain)(number, chain.form, fails)
                return made(number, chain=after, may_fail=bool(fails)), lambda handle: handle.replace(after)
            case "shape" | "migrate-fails" if self._kind == "chain":
                return self._reshaped(latest, number, value, fails=kind == "migrate-fails")
            case "shape" | "migrate-fails":
                return self._same(latest, number, value, fails=kind == "migrate-fails")
            case "mark":
                mark = Mark(number)
                step: Any = ResultMap(name, mark)
                return self._inserted(latest, number, name, mark), lambda handle: handle.insert(step)
        some = Some(-1 if kind == "fails" else 0 if self._kind == "timed" else value)
        before = names[0] if names and value & 64 else None
        filtered = Filter(name, some)
        recipe = self._inserted(latest, number, name, some, before=before)
        return recipe, lambda handle: handle.insert(filtered, before=before)

    @staticmethod
    def _inserted(latest: Recipe, number: int, name: str, step: Any, before: str | None = None) -> Recipe:
        at = 0 if before is not None else len(latest.steps)
        steps = (*latest.steps[:at], (name, step), *latest.steps[at:])
        fails = isinstance(step, Some) and step.every < 0
        return latest.next(number, steps=steps, may_fail=fails or bool(latest.fails))

    @staticmethod
    def _reshaped(latest: Recipe, number: int, value: int, *, fails: bool) -> tuple[Recipe, Any]:
        chain = latest.chain
        form = 0 if value & 1 and chain.form else number
        rare = RARE if value & 2 and value & 4 and not fails else 0  # what fails later must have a way back
        after = type(chain)(number, form, rare)
        migrate = Reshape(chain.form, form, (1 if value & 2 else 61 if value & 512 else 9) if fails else 0)
        ways = 3 if fails and value & 1024 else 0  # whose code fails on no record, as bins may have to stay with it
        back = Reshape(form, chain.form, ways, add=5) if value & 4 else None
        how = {"lazy": bool(value & 8), "budget_bytes": (1, 60, 300, 1 << 20)[value >> 4 & 3]}
        recipe = latest.next(number, chain=after, migrate=migrate, back=back, may_fail=fails or bool(rare))
        return recipe, lambda handle: handle.replace(after, migrate=migrate, back=back, **how)

    def _repairing(self, broken: int, number: int, value: int) -> tuple[Recipe, Any]:
        """Returns a version that takes the states which had to stay as they are, and turns the others."""
        if self._kind != "chain":
            recipe, _ = self._same(self.recipes[self.recipes[broken].parent], number, value, fails=False)
            by: Any = self._first
        else:
            before, form = self.recipes[self.recipes[broken].parent], self.recipes[broken].chain.form
            by = type(before.chain)(number, form)
            migrate = Reshape(before.chain.form, form, add=23)
            back = Reshape(form, before.chain.form, add=5) if value & 4 else None
            recipe = before.next(number, chain=by, migrate=migrate, back=back)
        how = {"lazy": bool(value & 8), "budget_bytes": (1, 60, 300, 1 << 20)[value >> 4 & 3], "repairs": broken}
        found = replace(recipe, repairs=broken)
        return found, lambda handle: handle.replace(by, migrate=found.migrate, back=found.back, **how)

    def _stuck(self, changing: Changing) -> list[int]:
        """Returns the versions at which bins had to stay, while others went back."""
        at = [number for number in np.unique(changing.required).tolist() if number in self.refused(changing)]
        return [number for number in at if (changing.required != number).any()]

    def _same(self, latest: Recipe, number: int, value: int, *, fails: bool) -> tuple[Recipe, Any]:
        migrate, back = Same(fails), Same() if value & 4 else None
        how = {"lazy": bool(value & 8), "budget_bytes": (1, 60, 300, 1 << 20)[value >> 4 & 3]}
        recipe = latest.next(number, migrate=migrate, back=back, may_fail=fails)
        return recipe, lambda handle: handle.replace(self._first, migrate=migrate, back=back, **how)

    # -- what must come of them ---------------------------------------------------------------------------------------

    def hear(self, events: Iterable[Any], changing: Changing) -> None:
        """Takes in the events of an epoch: a change ends once, or is taken back behind that, and has a cause to be."""
        for event in events:
            if isinstance(event, ChangeDone | ChangeRefused):
                before = self._ended.get(event.version)
                fits = before is None or (before is ChangeDone and isinstance(event, ChangeRefused))
                require(fits, "changes", f"version {event.version} ends a second time")
                self._ended[event.version] = type(event)
            if isinstance(event, ChangeRefused):
                recipe = self.recipes[event.version]
                fits = recipe.may_fail or not (recipe.repairs or self._stands(recipe.parent, changing))
                require(fits, "changes", f"version {event.version} is refused without a cause: {event.why}")

    def _stands(self, number: int, changing: Changing) -> bool:
        """Returns whether a version can hold everywhere: it was not refused, and no bins had to stay at another."""
        refused = self.refused(changing)
        stuck = [n for n in refused if self.recipes[n].may_keep]
        return number not in refused and not (changing.required == np.array([stuck]).T).any()

    @staticmethod
    def refused(changing: Changing) -> list[int]:
        """Returns the versions that were refused."""
        return [version for version, state in _ends(changing).items() if state == "refused"]

    def check_end(self, changing: Changing) -> None:
        """Requires that every change has ended, and that all bins run under the last one that is done."""
        ends, asked = _ends(changing), set(self.recipes) - {0}
        require(asked == set(ends), "changes", f"the versions {sorted(asked - set(ends))} have no end")
        done = [0, *(number for number in sorted(asked) if ends[number] == "done")]
        if self._stands(done[-1], changing):
            found = sorted(set(changing.required.tolist()))
            require(found == [done[-1]], "changes", f"bins run under the versions {found}, not {done[-1]}")


def _plain(kind: str, wanted: str) -> str:
    """Returns a change that operators of a kind can have in place of one that they cannot."""
    if kind == "timed":
        return {"rare": "fails", "mark": "insert", "replace": "insert"}.get(wanted, wanted)
    return {"rare": "fails", "replace": "mark", "shape": "insert", "migrate-fails": "fails"}.get(wanted, wanted)


def _ends(changing: Changing) -> dict[int, str]:
    """Returns "done" or "refused" by version."""
    found = {outcome.version: outcome.state for outcome in changing._outcomes.values()}
    current = changing._current
    return found | ({current.version.number: "done"} if current is not None and changing._phase == "proof" else {})


def _tried(changing: Changing) -> int:
    """Returns the version that is being tried, or will be, if it is the last asked for; 0 for none."""
    if changing._pending:
        return changing._pending[-1].version.number
    current = changing._current
    return current.version.number if current is not None and changing._phase == "trial" else 0

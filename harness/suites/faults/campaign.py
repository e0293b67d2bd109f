"""One campaign: the faults of a schedule for one mechanism, one after another on one query, then the oracle."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from generators.clock import now_us
from harness.lab.processes import signal_if_alive
from harness.suites.faults import damage, process_faults
from harness.suites.faults.process_faults import COMMAND_DEADLINE_S, FaultEffect, MissedError
from harness.suites.faults.report import Outcome, Verdict
from harness.suites.faults.schedule import Fault
from harness.suites.faults.site import Site, StuckError
from impls.errors import StateError, UsageError

__all__ = ["Campaign"]

_REFUSE_DEADLINE_S = 90.0
_RESUME_DEADLINE_S = 120.0
_SETTLE_DEADLINE_S = 90.0
_INFLICT: dict[str, Callable[[Site, Fault], FaultEffect]] = {
    "disk@full": damage.full_disk,
    "disk@read-only": damage.read_only_disk,
    "frame@torn": damage.torn_frame,
    "frame@truncated": damage.damage_frame,
    "frame@flipped": damage.damage_frame,
    "snapshot@truncated": damage.damage_snapshot,
    "snapshot@flipped": damage.damage_snapshot,
    "state@lost": damage.lose_state,
    "environment@lost": damage.damage_environment,
    "environment@truncated": damage.damage_environment,
    "environment@flipped": damage.damage_environment,
    "worker@stopped": process_faults.stop_worker,
    "worker@zombie": process_faults.wake_zombie,
    "broker@unreachable": process_faults.unreachable_broker,
}  # all others are kills at a fault point
_ONE_RESTART = {"jvm", "driver"}
_ONE_RESTART_NAMES = {"worker@zombie", "state@lost", "frame@torn"}


class Campaign:
    """run() inflicts the faults and returns the oracle's answer; `outcomes` has what became of each.

    A query that cannot be brought to go on ends the campaign: the faults left are not inflicted.
    """

    def __init__(self, folder: Path, faults: list[Fault], *, seed: int, durability: str):
        folder.mkdir(parents=True)
        self._faults = faults
        self._site = Site(folder, faults[0].mechanism, seed=seed, durability=durability)
        self.outcomes: list[Outcome] = []

    def run(self, tell: Callable[[Outcome], None]) -> dict[str, Any]:
        """Runs the campaign; `tell` gets each outcome when it is known."""
        site = self._site
        try:
            if any(fault.victim == "disk" for fault in self._faults):
                site.disk.mount()
            site.start()
            for fault in self._faults:
                self.outcomes.append(self._inflict(fault))
                tell(self.outcomes[-1])
                if self.outcomes[-1].verdict == "stuck":
                    self._rescue()
            return site.stop_and_check()
        except (StuckError, StateError, UsageError) as error:
            return {"verdict": "unknown", "reasons": [f"The campaign was cut off: {error}."]}
        finally:
            for pid in site.stopped:
                signal_if_alive(pid, signal.SIGCONT)
            site.close()

    def _inflict(self, fault: Fault) -> Outcome:
        site = self._site
        site.begin_fault()
        before, epochs = site.migrations, site.epochs()
        made = partial(Outcome, fault, epoch=epochs[-1]["epoch"] if epochs else -1)
        effect: FaultEffect | None = None
        verdict: Verdict = "survived"
        resume_s, said = None, ""
        try:
            try:
                effect = _INFLICT.get(fault.name, process_faults.kill)(site, fault)
                verdict, said, at_us = self._after(fault, effect)
                resume_s = self._await_resumed(at_us, again=effect.again and fault.expected == "survives")
                effect.later()
            except MissedError as error:
                verdict, said = "missed", str(error)
            if site.migrations == before:
                site.migrate(COMMAND_DEADLINE_S)
            site.await_true(site.settled, "the migration to complete", _SETTLE_DEADLINE_S)
        except (StuckError, StateError, UsageError) as error:
            if effect is not None:
                effect.repair()
            site.arming.disarm()
            return made("stuck", restarts=site.restarts, said=f"{error}; {_words(site)}")
        if verdict == "survived" and site.restarts > _restarts_allowed(fault):
            verdict = "restarted"
        elif effect is not None and effect.recovers and not _recovered(site, effect.at_us):
            verdict, said = "missed", "no worker was rebuilt"
        return made(verdict, resume_s=resume_s, restarts=site.restarts, said=said or _words(site))

    def _after(self, fault: Fault, effect: FaultEffect) -> tuple[Verdict, str, int]:
        """Returns (verdict, what the query said, when it has to resume); repairs what it refused to go on with."""
        site = self._site
        if fault.expected == "survives":
            return "survived", "", effect.at_us
        try:
            site.await_true(lambda: bool(site.ended), "the query to refuse", _REFUSE_DEADLINE_S)
        except StuckError:
            effect.repair()
            site.held = False
            return "survived", "it never noticed", now_us()
        ended = site.ended[0]
        effect.repair()
        at_us = now_us()
        site.release()
        named = ended.sentence is not None and any(name in ended.sentence for name in effect.names)
        return ("refused" if named else "crashed"), str(ended), at_us

    def _await_resumed(self, at_us: int, *, again: bool) -> float:
        """Returns the seconds from then to the end of the next epoch; with `again` one already begun counts."""
        mark = "end_us" if again else "begin_us"

        def next_end() -> int | None:
            return next((line["end_us"] for line in self._site.epochs() if line[mark] > at_us), None)

        self._site.await_true(lambda: next_end() is not None, "the next epoch to finish", _RESUME_DEADLINE_S)
        return ((next_end() or at_us) - at_us) / 1e6

    def _rescue(self) -> None:
        """Starts the query again when it did not recover from a fault; raises StuckError when that does not help."""
        site = self._site
        site.begin_fault()
        site.query.crash()
        site.await_true(site.settled, "the query to go on after a new start", _RESUME_DEADLINE_S)


def _restarts_allowed(fault: Fault) -> int:
    return int(fault.victim in _ONE_RESTART or fault.name in _ONE_RESTART_NAMES)


def _recovered(site: Site, at_us: int) -> bool:
    return any(line["recovered"] for line in site.epochs() if line["end_us"] > at_us)


def _words(site: Site) -> str:
    return "; ".join(str(ended) for ended in site.ended)

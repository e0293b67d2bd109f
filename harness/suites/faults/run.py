"""`./inv fault-test`: the schedule printed first, then one campaign per mechanism, then the table.

A campaign inflicts the faults of a schedule for one mechanism, one after another on one query; then the oracle judges.
"""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from generators.clock import now_us
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.files import RESULTS, write_json
from harness.lab.processes import signal_if_alive
from harness.options import CUT_OFF, ending, parse_names
from harness.report.terminal import terminal
from harness.results.machine import describe_machine
from harness.results.place import new_folder
from harness.setup.java import ensure_jars, use_java
from harness.suites.faults.chain_site import ChainSite
from harness.suites.faults.host_inflict import inflict_on_hosts
from harness.suites.faults.hosts import HostSite
from harness.suites.faults.inflict import FaultEffect, MissedError, inflict
from harness.suites.faults.report import FILE, FaultOutcome, Verdict, report_of, show
from harness.suites.faults.schedule import (
    EXPECTED,
    HOST_FAULTS,
    KILLS,
    Fault,
    check_rights,
    draw_chain_schedule,
    draw_host_schedule,
    draw_schedule,
)
from harness.suites.faults.site import Site, StuckError
from impls import catalog
from impls.durability.files import check_level
from impls.errors import StateError, UsageError

_HEAVY = ("state", "checkpoint", "broker", "cluster")
_REFUSE_DEADLINE_S = 90.0
_RESUME_DEADLINE_S = 120.0
_SETTLE_DEADLINE_S = 90.0
CHAIN = "chain"
_DRAWN: dict[str, tuple[Callable[..., list[Fault]], Iterable[str]]] = {
    "": (draw_schedule, EXPECTED),
    CHAIN: (draw_chain_schedule, KILLS),
    "cluster": (draw_host_schedule, HOST_FAULTS),
}
_ONE_RESTART = {"jvm", "driver"}
_ONE_RESTART_NAMES = {"worker@zombie", "state@lost", "frame@torn"}


class _Campaign:
    """run() inflicts the faults and returns the oracle's answer; `outcomes` has what became of each.

    A query that cannot be brought to go on ends the campaign: the faults left are not inflicted.
    """

    def __init__(
        self, folder: Path, faults: list[Fault], *, seed: int, durability: str, where: int | str = "", mode: str
    ):
        folder.mkdir(parents=True)
        self._faults = faults
        kind = ChainSite if where == CHAIN else Site
        self._site: Site = kind(folder, faults[0].mechanism, seed=seed, durability=durability, mode=mode)
        self._inflict_here = partial(inflict, self._site)
        if isinstance(where, int):
            self._site = site = HostSite(folder, faults[0].mechanism, seed=seed, durability=durability, hosts=where)
            self._inflict_here = partial(inflict_on_hosts, site)
        self.outcomes: list[FaultOutcome] = []

    def run(self, tell: Callable[[FaultOutcome], None]) -> dict[str, Any]:
        """Runs the campaign; `tell` gets each outcome when it is known."""
        site = self._site
        try:
            site.prepare(self._faults)
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

    def _inflict(self, fault: Fault) -> FaultOutcome:
        site = self._site
        site.begin_fault()
        before, epochs = site.migrations, site.epochs()
        made = partial(FaultOutcome, fault, epoch=epochs[-1]["epoch"] if epochs else -1)
        effect: FaultEffect | None = None
        verdict: Verdict = "survived"
        resume_s, said = None, ""
        try:
            try:
                effect = self._inflict_here(fault)
                verdict, said, at_us = self._after(fault, effect)
                resume_s = self._await_resumed(at_us, again=effect.again and fault.expected == "survives")
                effect.later()
            except MissedError as error:
                verdict, said = "missed", str(error)
            if site.migrations == before:
                site.migrate()
            site.await_true(site.settled, "the migration to complete", _SETTLE_DEADLINE_S)
        except (StuckError, StateError, UsageError) as error:
            if effect is not None:
                effect.repair()
            site.arming.disarm()
            return made("stuck", restarts=site.restarts, said=f"{error}; {_words(site)}")
        allowed = int(fault.victim in _ONE_RESTART or fault.name in _ONE_RESTART_NAMES)
        if verdict == "survived" and site.restarts > allowed:
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


def _recovered(site: Site, at_us: int) -> bool:
    return any(line["recovered"] for line in site.epochs() if line["end_us"] > at_us)


def _words(site: Site) -> str:
    return "; ".join(str(ended) for ended in site.ended)


def fault_test(
    schedule: list[Fault],
    folder: Path,
    *,
    seed: int,
    durability: str,
    console: Console,
    where: int | str = "",
    mode: str = MICRO_BATCH,
) -> tuple[dict[str, Any], bool]:
    """Runs a schedule of faults, writes the report into the folder and returns (report, whether it was cut off).

    The query runs on a cluster of so many hosts where `where` is a number, and is a chain where it is `CHAIN`; `mode`
    is Spark's. What is heavy of a campaign without findings is deleted; the logs stay.
    """
    begun = time.monotonic()
    outcomes: list[FaultOutcome] = []
    answers: dict[str, dict[str, Any]] = {}
    cut_off = False

    def tell(outcome: FaultOutcome) -> None:
        outcomes.append(outcome)
        resumed = "" if outcome.resume_s is None else f", resumed after {outcome.resume_s:.1f} s"
        words = f": {outcome.said}" if outcome.said else ""
        console.print(f"{outcome.fault.id} {outcome.verdict}{resumed}{words}", soft_wrap=True)

    try:
        for mechanism, faults in groupby(schedule, key=lambda fault: fault.mechanism):
            console.print(f"{mechanism}: begins")
            how: dict[str, Any] = {"seed": seed, "durability": durability, "where": where, "mode": mode}
            campaign = _Campaign(folder / mechanism, list(faults), **how)
            answers[mechanism] = campaign.run(tell)
            console.print(f"{mechanism}: {answers[mechanism]['verdict']}")
            if answers[mechanism]["verdict"] == "valid" and all(o.good for o in campaign.outcomes):
                for heavy in _HEAVY:
                    shutil.rmtree(folder / mechanism / heavy, ignore_errors=True)
    except KeyboardInterrupt:
        cut_off = True
    report = report_of(seed, schedule, outcomes, answers, seconds=time.monotonic() - begun)
    write_json(folder / FILE, {**report, "environment": describe_machine(seed)})
    return report, cut_off


@ending()
def run_fault_test(
    *,
    seed: int,
    mechanism: str = "",
    only: str = "",
    quick: bool = False,
    durability: str = "process",
    cluster: int | None = None,
    chain: bool = False,
    output: str | None = None,
    mode: str = MICRO_BATCH,
) -> int:
    """Runs the fault test that the options of `./inv fault-test` describe and returns the exit code.

    It is 0 when nothing was lost or doubled and every fault ended as expected, 1 otherwise, 2 for bad input and 130
    when it was cut off. The last line printed is the folder with the report.
    """
    console = terminal()
    check_level(durability)
    if cluster is not None and (chain or mode == REAL_TIME):
        raise UsageError("Real-time mode and chains are tested in one process of Spark: leave out --cluster.")
    draw, known = _DRAWN["cluster" if cluster is not None else CHAIN if chain else ""]
    chosen = parse_names(mechanism, catalog.names(), "mechanism")
    schedule = draw(seed, chosen, only=parse_names(only, known, "fault"), quick=quick)
    if cluster is not None:
        check_rights(schedule)
    use_java()
    ensure_jars()
    folder = new_folder(Path(output or RESULTS), "faults")
    console.print(f"seed {seed}, durability {durability}, {mode}, {len(schedule)} faults")
    for fault in schedule:
        console.print(f"{fault.id} {fault.mechanism} {fault.phase} {fault.expected} (draw {fault.draw})")
    report, cut_off = fault_test(
        schedule, folder, seed=seed, durability=durability, console=console,
        where=CHAIN if chain else cluster or "", mode=mode,
    )  # fmt: skip
    show(report, console)
    sys.stdout.write(f"{folder}\n")
    return CUT_OFF if cut_off else int(not report["good"])

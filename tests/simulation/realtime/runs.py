"""A seed from its first epoch to its last, with everything that goes wrong in it."""

from pathlib import Path

from chaos.checks import check_journals
from chaos.folders import folder_of_its_own
from chaos.outcome import Outcome
from chaos.violation import Violation, counted, require

from impls.store.environment import Store
from realtime.commits import Commits
from realtime.cuts import Cuts
from realtime.lookups import Looks
from realtime.oracle import Oracle
from realtime.parameters import Parameters
from realtime.patches import simulated
from realtime.query import Query
from realtime.stops import Stops
from realtime.troubles import Troubles
from realtime.workload import Workload

REST = 4  # epochs behind the last record, in which what event time holds back comes to its end


def simulate(p: Parameters) -> Outcome:
    """Runs a query in a folder of its own, in memory where the system has such a file system."""
    with folder_of_its_own() as folder:
        return _run(p, folder)


def _run(p: Parameters, folder: Path) -> Outcome:
    (folder / "scratch").mkdir()
    troubles = Troubles(p)
    violation, sentence = None, ""
    commits = Commits(folder)
    with simulated(p, troubles.point), commits.seen(), Store.open(folder / "scratch") as scratch:
        query = Query(p, Workload(p), troubles, folder)
        oracle = Oracle(p, query, scratch, commits)
        looks = Looks(p, query, commits)
        cuts = Cuts(p, query, looks)
        query.look = lambda: (looks.look(), cuts.look())
        try:
            _epochs(p, query, oracle, troubles, Stops(p, query, commits))
            cuts.end()
        except Violation as error:
            when = f"after epoch {query.driver.last_epoch}, start {query.starts}, session {query.sessions}"
            violation = error.check
            sentence = error.sentence(f"Seed {p.seed}", p, counted(troubles.fired), when, folder=folder)
        finally:
            query.close()
    return Outcome(
        p.seed, violation, sentence, oracle.digest.hexdigest(), query.driver.last_epoch + 1, query.starts, query.steps,
        troubles.fired, query.sessions,
    )  # fmt: skip


def _epochs(p: Parameters, query: Query, oracle: Oracle, troubles: Troubles, stops: Stops) -> None:
    """Runs epochs until all is done, the last ones in peace."""
    last, after, number = p.epochs + 3 * p.bins * (len(p.commands) + len(p.changes)) + 150, 0, 0
    while number < p.epochs or after < REST:
        require(number < last, "goal", f"{query.driver.controller.misplaced} bins are not at their goal")
        for epoch, kind, value in p.commands:
            if epoch == number:
                query.command(kind, value)
        if number == p.epochs:
            _stopped(query, oracle, troubles, stops)
        if number < p.epochs:
            query.ask(number)
        query.epoch()
        oracle.epoch()
        if number % 6 == 5:
            check_journals(p, query.driver)  # type: ignore[arg-type]
        troubles.on = number < p.epochs
        if number >= p.epochs:
            query.load.produce(1_000)
            after = after + 1 if quiet(query) else 0
        number += 1
    oracle.end()


def _stopped(query: Query, oracle: Oracle, troubles: Troubles, stops: Stops) -> None:
    """The query is stopped, while records come and things go wrong perhaps, and begins anew."""
    troubles.on = stops.disturbed
    if stops.stop():
        oracle.epoch()
        query.start_again()
    troubles.on = False


def quiet(query: Query) -> bool:
    """Returns whether a query has nothing left to do."""
    controller, session = query.driver.controller, query.session
    clock = controller.clock
    if session is None or not session.drained() or (clock is not None and not clock.settled):
        return False
    return not controller.busy and not controller.queued.any()

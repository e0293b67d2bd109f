"""The search: runs of a small world, each from a beginning that no run before had, those with few deviations first."""

import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from chaos.folders import folder_of_its_own
from chaos.violation import Violation, require
from realtime.commits import Commits
from realtime.oracle import Oracle

from every.choices import Choices, SeenBefore
from every.patches import small_world
from every.small import Small
from every.world import World
from impls.store.environment import Store

_QUIET = 2  # epochs at the end in which nothing happens: the first reports what was before it
_REST = 40  # epochs behind those that are tried in which everything must come to its end


@dataclass
class Ran:
    """What one run came to: `violation` is None or the check that failed, with a `sentence` and the events."""

    choices: Choices
    violation: str | None = None
    sentence: str = ""
    trace: list[str] = field(default_factory=list)
    ended: bool = False


def run(small: Small, choices: Choices) -> Ran:
    """Runs a world from its beginning to its end, or to a state from which another run has gone on."""
    with folder_of_its_own() as folder:
        return _run(small, choices, folder)


def _run(small: Small, choices: Choices, folder: Path) -> Ran:
    ran, p, commits = Ran(choices), small.parameters(), Commits(folder)
    worlds: list[World] = []
    with (
        small_world(p, lambda: worlds[0].failure if worlds else None),
        commits.seen(),
        Store.open(folder / "state" / "scratch") as scratch,
    ):
        world = World(small, choices, folder)
        worlds.append(world)
        oracle = Oracle(p, world, scratch, commits)
        world.check = oracle._results
        world.states.also = lambda: (
            oracle._place, oracle._last, oracle._seen.last, sorted(oracle._sent.items()),
            sorted(commits.held, key=lambda commit: commit.worker),
        )  # fmt: skip
        try:
            _epochs(small, world, oracle)
            ran.ended = True
        except SeenBefore:
            pass
        except Violation as error:
            ran.violation = error.check
            ran.sentence = str(error).replace(str(folder), "")
        finally:
            ran.trace = world.trace
            world.free = False
            world.close()
    return ran


def _epochs(small: Small, world: World, oracle: Oracle) -> None:
    quiet = 0
    for number in range(1 + small.epochs + _REST):
        world.free = world.failure.on = 1 <= number <= small.epochs
        if number == 1:
            world.command_goal()
        world.epoch()
        oracle.epoch()
        quiet = quiet + 1 if number > small.epochs and _quiet(world) else 0
        if quiet == _QUIET:
            break
    require(quiet == _QUIET, "goal", f"{world.driver.controller.misplaced} bins are not at their goal")
    oracle.end()


def _quiet(world: World) -> bool:
    controller, session = world.driver.controller, world.session
    return session is not None and session.drained() and not controller.busy and not controller.queued.any()


@dataclass
class Found:
    """What a search came to.

    Attributes:
        runs, states, ends: runs, states visited, and runs that came to the end of the world.
        depth: choices of the longest run.
        complete: number of deviations up to which every order was tried, -1 for none; `whole`: there are no others.
        violation: the first run that violated something.
    """

    runs: int = 0
    states: int = 0
    ends: int = 0
    depth: int = 0
    seconds: float = 0.0
    complete: int = -1
    whole: bool = False
    waiting: int = 0
    violation: Ran | None = None


def explore(small: Small, *, seconds: float, deviations: int | None = None) -> Found:
    """Runs a world in every order, those with fewer deviations first.

    It ends with the first violation, after so many seconds, or when all orders with so many deviations are tried.
    """
    found, seen, begin = Found(), set[bytes](), time.monotonic()
    levels: dict[int, deque[bytes]] = defaultdict(deque)
    levels[0].append(b"")
    while levels:
        level = min(levels)
        if deviations is not None and level > deviations:
            return found
        todo = levels[level]
        while todo:
            found.seconds = time.monotonic() - begin
            if found.seconds > seconds:
                found.waiting = sum(map(len, levels.values()))
                return found
            ran = run(small, Choices(todo.pop(), seen))
            _queue(levels, ran.choices)
            found.runs, found.states, found.ends = found.runs + 1, len(seen), found.ends + ran.ended
            found.depth = max(found.depth, len(ran.choices.taken))
            if ran.violation is not None:
                found.violation = ran
                return found
        del levels[level]
        found.complete = level
    found.whole = True
    return found


def _queue(levels: dict[int, deque[bytes]], choices: Choices) -> None:
    """Takes in what a run could have done otherwise."""
    for at, costs in choices.open:
        for chosen in range(1, len(costs)):
            levels[choices.deviations + costs[chosen]].append(bytes(choices.taken[:at]) + bytes([chosen]))

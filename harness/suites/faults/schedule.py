"""Which faults a fault test inflicts, in which order: a pure function of the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal

import numpy as np

from harness.experiment.schedules import VICTIMS
from harness.lab.hosts.isolated import can_isolate
from impls.errors import UsageError
from impls.faults import POINTS

MECHANISMS = ("runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched")
QUICK_MECHANISMS = ("runtime-restart", "megaphone-batched")

Phase = Literal["migrating", "steady"]
Expectation = Literal["survives", "refuses"]

KILLS = tuple(f"{victim}@{point}" for point in POINTS for victim in VICTIMS)
EXPECTED: dict[str, Expectation] = {
    **dict.fromkeys(KILLS, "survives"),
    "disk@full": "refuses",
    "disk@read-only": "refuses",
    "frame@torn": "survives",  # the newest one: its worker's environment still has it
    "frame@truncated": "refuses",  # with all environments lost, in this and the next three
    "frame@flipped": "refuses",
    "snapshot@truncated": "refuses",
    "snapshot@flipped": "refuses",
    "state@lost": "survives",  # all environments
    "environment@lost": "survives",
    "environment@truncated": "survives",
    "environment@flipped": "survives",
    "worker@stopped": "survives",
    "worker@zombie": "survives",
    "broker@unreachable": "survives",
}
_OTHERS = tuple(name for name in EXPECTED if name not in KILLS)
QUICK = (
    "worker@after-commit", "worker@during-pull", "jvm@before-results", "driver@after-plan", "broker@before-results",
    "driver@before-epoch-commit", "worker@between-pull-and-drop", "worker@during-recovery", "environment@flipped",
    "environment@lost", "frame@flipped", "worker@zombie",
)  # fmt: skip
_KILLS_EACH = 24
_STEADY_EVERY = 8  # the others happen in a migration
_IN_MIGRATIONS = {"during-pull", "between-pull-and-drop"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        number: place in the schedule, from 0.
        mechanism: the mechanism of the query.
        victim, point: process role and fault point of a kill; what else is broken, and how.
        phase: whether it happens in a migration that was commanded for it, or before.
        draw: a random number for every choice that is left open: a worker, a file, a position in it.
        expected: survives: the query goes on; refuses: it ends with a sentence and goes on once the cause is repaired.
    """

    number: int
    mechanism: str
    victim: str
    point: str
    phase: Phase
    draw: int
    expected: Expectation = "survives"

    @property
    def name(self) -> str:
        """victim@point."""
        return f"{self.victim}@{self.point}"

    @property
    def id(self) -> str:
        """A name that no other fault of the schedule has."""
        return f"{self.number:03d}-{self.name}"


def draw_schedule(
    seed: int, mechanisms: Sequence[str] = (), *, only: Sequence[str] = (), quick: bool = False
) -> list[Fault]:
    """Returns the faults of a test, grouped by mechanism; the same for the same arguments.

    Every kill is in it once at least, every mechanism has 24 kills or more, and everything else is in it once.

    Args:
        seed: decides order, phases and all that is left to chance.
        mechanisms: names of mechanisms; all four that must stand the test by default.
        only: names of faults: nothing but these, each once with every mechanism.
        quick: twelve faults that show the most.
    """
    rng = np.random.default_rng(seed)
    chosen = tuple(mechanisms) or (QUICK_MECHANISMS if quick else MECHANISMS)
    if only:
        dealt = {mechanism: list(only) for mechanism in chosen}
    elif quick:
        dealt = _deal(shuffled(rng, QUICK), chosen)
    else:
        dealt = _everything(rng, chosen)
    return _deal_phases(rng, dealt, EXPECTED)


def _everything(rng: np.random.Generator, mechanisms: Sequence[str]) -> dict[str, list[str]]:
    each = max(_KILLS_EACH, -(-len(KILLS) // len(mechanisms)))
    kills = islice(cycle(shuffled(rng, KILLS)), each * len(mechanisms))
    dealt = {mechanism: list(islice(kills, each)) for mechanism in mechanisms}
    for mechanism, others in _deal(shuffled(rng, _OTHERS), mechanisms).items():
        dealt[mechanism] = shuffled(rng, dealt[mechanism] + others)
    return dealt


def _deal(names: Sequence[str], mechanisms: Sequence[str]) -> dict[str, list[str]]:
    return {mechanism: list(names[i :: len(mechanisms)]) for i, mechanism in enumerate(mechanisms)}


def shuffled(rng: np.random.Generator, names: Sequence[str]) -> list[str]:
    """Returns the names in an order that is drawn."""
    return [names[i] for i in rng.permutation(len(names))]


def _deal_phases(
    rng: np.random.Generator, dealt: Mapping[str, Sequence[str]], expected: Mapping[str, Expectation]
) -> list[Fault]:
    """Returns the faults of each mechanism, every eighth of them in steady state where it can happen there."""
    out: list[Fault] = []
    for mechanism, names in dealt.items():
        for place, name in enumerate(names):
            victim, _, point = name.partition("@")
            steady = place % _STEADY_EVERY == _STEADY_EVERY - 1 and point not in _IN_MIGRATIONS
            phase: Phase = "steady" if steady else "migrating"
            out.append(Fault(len(out), mechanism, victim, point, phase, int(rng.integers(1 << 30)), expected[name]))
    return out


_CHAIN_MECHANISMS = ("megaphone-batched", "megaphone-fluid")
_CHAIN_KILLS = 100


def draw_chain_schedule(
    seed: int, mechanisms: Sequence[str] = (), *, only: Sequence[str] = (), quick: bool = False
) -> list[Fault]:
    """Returns the faults of a test of a chain, grouped by mechanism; the same for the same arguments.

    There are a hundred kills, each once at least; with `quick` those of the twelve faults that show the most.
    """
    rng = np.random.default_rng(seed)
    chosen = tuple(mechanisms) or _CHAIN_MECHANISMS
    if only:
        return _deal_phases(rng, {mechanism: list(only) for mechanism in chosen}, EXPECTED)
    kills = [name for name in QUICK if name in KILLS]
    names = shuffled(rng, kills) if quick else list(islice(cycle(shuffled(rng, KILLS)), _CHAIN_KILLS))
    return _deal_phases(rng, _deal(names, chosen), EXPECTED)


_MECHANISMS = ("megaphone-batched", "megaphone-fluid", "meces", "rhino")
_QUICK_MECHANISMS = ("megaphone-batched", "rhino")
_NUMBER = 60
_AS_ROOT = frozenset({"link", "gone", "zombie", "checkpoint", "disk"})
_IN_EPOCH = (
    "before-plan", "after-plan", "during-pull", "after-commit", "before-results", "before-report", "during-snapshot",
    "before-epoch-commit", "between-pull-and-drop",
)  # fmt: skip
_ACROSS = ("after-plan", "during-pull", "after-commit", "before-epoch-commit", "between-pull-and-drop")
HOST_FAULTS: dict[str, Expectation] = {
    **{f"executor@{point}": "survives" for point in _IN_EPOCH},  # killed with -9
    **{f"host@{point}": "survives" for point in _ACROSS},  # off at once; another one comes later
    **{f"link@{point}": "survives" for point in _ACROSS},  # cut for 20 s
    **{f"gone@{point}": "survives" for point in _ACROSS},  # cut for good: nobody takes its place at first
    **{f"zombie@{point}": "survives" for point in _ACROSS},  # cut until the others have migrated without it
    "worker@during-pull": "survives",
    "worker@after-commit": "survives",
    "driver@after-plan": "survives",
    "driver@between-pull-and-drop": "survives",
    "jvm@before-results": "survives",
    "checkpoint@slow": "survives",
    "checkpoint@frozen": "survives",
    "checkpoint@gone": "survives",
    "disk@full": "refuses",
}
HOST_QUICK = (
    "executor@during-pull", "executor@after-commit", "executor@between-pull-and-drop", "host@during-pull",
    "host@after-plan", "link@after-commit", "zombie@during-pull", "checkpoint@slow", "checkpoint@gone", "disk@full",
)  # fmt: skip


def check_rights(faults: Sequence[Fault]) -> None:
    """Raises UsageError for a fault that this user may not inflict."""
    refused = sorted({fault.name for fault in faults if fault.victim in _AS_ROOT})
    if refused and not can_isolate():
        raise UsageError(f"The fault {refused[0]} needs hosts in namespaces: run as root, or leave it out by --only.")


def draw_host_schedule(
    seed: int, mechanisms: Sequence[str] = (), *, only: Sequence[str] = (), quick: bool = False
) -> list[Fault]:
    """Returns the faults of a test on a cluster, grouped by mechanism; the same for the same arguments.

    There are sixty, every kind at least once.

    Args:
        seed: decides order, phases and all that is left to chance.
        mechanisms: names of mechanisms; four by default.
        only: names of faults: nothing but these, each once with every mechanism.
        quick: ten faults that show the most, with two mechanisms.
    """
    rng = np.random.default_rng(seed)
    chosen = tuple(mechanisms) or (_QUICK_MECHANISMS if quick else _MECHANISMS)
    if only:
        return _deal_phases(rng, {mechanism: list(only) for mechanism in chosen}, HOST_FAULTS)
    names = shuffled(rng, HOST_QUICK) if quick else list(islice(cycle(shuffled(rng, tuple(HOST_FAULTS))), _NUMBER))
    return _deal_phases(rng, {name: names[i :: len(chosen)] for i, name in enumerate(chosen)}, HOST_FAULTS)

"""Which faults a cluster of hosts meets, in which order: a pure function of the seed."""

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from harness.lab.hosts.kernel import can_isolate
from harness.suites.faults.schedule import Expectation, Fault, deal_phases, shuffled
from impls.errors import UsageError

__all__ = ["HOST_FAULTS", "HOST_QUICK", "check_rights", "draw_host_schedule"]

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
        return deal_phases(rng, {mechanism: list(only) for mechanism in chosen}, HOST_FAULTS)
    names = shuffled(rng, HOST_QUICK) if quick else list(islice(cycle(shuffled(rng, tuple(HOST_FAULTS))), _NUMBER))
    return deal_phases(rng, {name: names[i :: len(chosen)] for i, name in enumerate(chosen)}, HOST_FAULTS)

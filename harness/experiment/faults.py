"""The words of a fault: victims, the points where a process can be killed, and how `--fault` names them."""

from impls.errors import UsageError
from impls.faults import POINTS

__all__ = ["ANY_PHASE", "DRIVER_POINTS", "VICTIMS", "parse_fault"]

VICTIMS = ("worker", "jvm", "driver", "broker")
DRIVER_POINTS = frozenset({"before-plan", "after-plan", "before-epoch-commit", "between-pull-and-drop"})
ANY_PHASE = frozenset(
    {"during-pull", "between-pull-and-drop", "during-recovery"}
)  # with a migration or a loss, or behind


def parse_fault(text: str) -> tuple[str, str]:
    """Reads victim@point, or victim@migrating for the middle of an epoch; raises UsageError for anything else."""
    victim, _, point = text.partition("@")
    if victim not in VICTIMS or point not in {*POINTS, "migrating"}:
        points = ", ".join(("migrating", *POINTS))
        raise UsageError(f"A fault is VICTIM@POINT, a victim of {', '.join(VICTIMS)} and a point of {points}.")
    return victim, "after-commit" if point == "migrating" else point

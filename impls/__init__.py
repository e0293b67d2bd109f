"""Live state migration for stateful Spark Structured Streaming queries."""

import logging

from impls.errors import InvalidPlanError, StateError, UsageError

__all__ = [
    "ControlTopic",
    "ForeachBatch",
    "InvalidPlanError",
    "Output",
    "RealTime",
    "StateError",
    "UsageError",
    "stream",
    "transform_with_state",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is told is the user's to show, see README.md


def __getattr__(name: str) -> object:
    """Loads what needs Spark when it is first asked for: mechanisms and the simulator do not need it."""
    if name in {"ControlTopic", "ForeachBatch", "Output", "RealTime", "stream"}:
        from impls import api  # noqa: PLC0415 - see above

        return getattr(api, name)
    if name == "transform_with_state":
        from impls.processor import start  # noqa: PLC0415

        return start.transform_with_state
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Live state migration for stateful Spark Structured Streaming queries."""

from impls.errors import InvalidPlanError, StateError, UsageError

__all__ = [
    "ControlTopic",
    "InvalidPlanError",
    "RealTime",
    "StateError",
    "UsageError",
    "stream",
    "transform_with_state",
]


def __getattr__(name: str) -> object:
    """Loads what needs Spark when it is first asked for: mechanisms and the simulator do not need it."""
    if name in {"ControlTopic", "RealTime", "stream"}:
        from impls import api  # noqa: PLC0415 - see above

        return getattr(api, name)
    if name == "transform_with_state":
        from impls.processor import start  # noqa: PLC0415

        return start.transform_with_state
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Live state migration for stateful Spark Structured Streaming queries."""

from impls.errors import InvalidPlanError, StateError, UsageError

__all__ = ["InvalidPlanError", "StateError", "UsageError", "stream"]


def __getattr__(name: str) -> object:
    """Loads `stream` when it is first asked for: mechanisms and the simulator need no Spark."""
    if name == "stream":
        from impls.api import stream  # noqa: PLC0415 - see above

        return stream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

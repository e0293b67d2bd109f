"""Live state migration for stateful Spark Structured Streaming queries."""

import logging
from importlib import import_module

from impls.errors import InvalidPlanError, StateError, UsageError

__all__ = [
    "Adopted",
    "Chain",
    "ControlTopic",
    "Cut",
    "ForeachBatch",
    "InvalidPlanError",
    "Output",
    "RealTime",
    "Released",
    "Stage",
    "StateError",
    "UsageError",
    "adopt",
    "aggregate",
    "chain",
    "cut_of",
    "metrics_of",
    "read_state",
    "release",
    "results_of",
    "stream",
    "transform_with_state",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # what is told is the user's to show


def __getattr__(name: str) -> object:
    """Loads what needs Spark when it is first asked for: mechanisms and the simulator do not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"impls.{_HOMES[name]}"), name)


_HOMES = {
    "Adopted": "adoption.adopting",
    "Chain": "chains",
    "ControlTopic": "api",
    "Cut": "reading.cuts",
    "ForeachBatch": "api",
    "Output": "api",
    "RealTime": "api",
    "Released": "releasing.releasing",
    "Stage": "stages",
    "adopt": "adoption.adopting",
    "aggregate": "aggregation",
    "chain": "chains",
    "cut_of": "reading.cuts",
    "metrics_of": "spark.compiled",
    "read_state": "reading.state",
    "release": "releasing.releasing",
    "results_of": "spark.links",
    "stream": "api",
    "transform_with_state": "processor.start",
}

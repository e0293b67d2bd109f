"""Keyed operators that run on the migration runtime; they know nothing of migration."""

import warnings
from typing import Any

from impls.operators.aggregates.operator import Aggregate
from impls.operators.base import Operator, RecordOperator
from impls.operators.keycount import DenseCount, HashCount
from impls.operators.pipeline import Pipeline
from impls.operators.stateful_map import StatefulMap
from impls.operators.steps import Batch, Filter, Map, ResultMap
from impls.operators.timed import KeyedProcess, TimedOperator
from impls.protocol.eventtime import EventTime

__all__ = [
    "Aggregate",
    "Batch",
    "DenseCount",
    "EventTime",
    "Filter",
    "HashCount",
    "KeyedProcess",
    "Map",
    "Operator",
    "Pipeline",
    "RecordOperator",
    "ResultMap",
    "StatefulMap",
    "TimedOperator",
]


def __getattr__(name: str) -> Any:
    if name == "TimedPipeline":  # of 0.1.0
        warnings.warn("impls.operators.TimedPipeline is Pipeline now.", DeprecationWarning, stacklevel=2)
        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Keyed operators that run on the migration runtime; they know nothing of migration."""

from impls.operators.aggregates.operator import Aggregate
from impls.operators.base import Operator
from impls.operators.keycount import DenseCount, HashCount
from impls.operators.pipeline import Pipeline, TimedPipeline
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
    "ResultMap",
    "StatefulMap",
    "TimedOperator",
    "TimedPipeline",
]

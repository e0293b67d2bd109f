"""Keyed operators that run on the migration runtime; they know nothing of migration."""

from impls.operators.base import Operator
from impls.operators.keycount import DenseCount, HashCount
from impls.operators.stateful_map import StatefulMap
from impls.operators.timed import KeyedProcess, TimedOperator

__all__ = ["DenseCount", "HashCount", "KeyedProcess", "Operator", "StatefulMap", "TimedOperator"]

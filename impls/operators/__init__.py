"""Keyed operators that run on the migration runtime; they know nothing of migration."""

from impls.operators.base import Operator
from impls.operators.keycount import DenseCount, HashCount
from impls.operators.stateful_map import StatefulMap

__all__ = ["DenseCount", "HashCount", "Operator", "StatefulMap"]

"""The ways in which Spark's own query is restarted; they have no plan, as nothing of it can move while it runs."""

from dataclasses import dataclass
from typing import ClassVar

from impls.errors import UsageError

_OPERATORS = ("count", "processor")


@dataclass(frozen=True)
class Native:
    """A baseline on Spark's own state.

    Attributes:
        operator: count (`groupBy().count()`) or processor (`transformWithStateInPandas`).
        repartitions: whether the state is repartitioned offline while the query is down.
        mode: how Spark runs the query, micro-batch or real-time.
    """

    operator: str = "count"
    repartitions: ClassVar[bool] = False
    mode: ClassVar[str] = "micro-batch"

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise UsageError(f"Spark's own operator is {' or '.join(_OPERATORS)}, not {self.operator!r}.")


class NativeRestart(Native):
    """The query is stopped and started with as many partitions as before: the least a restart costs, no rescale."""


class NativeRepartition(Native):
    """The query is stopped, its state is repartitioned offline, and it is started: how one rescales in Spark 4.2."""

    repartitions: ClassVar[bool] = True


@dataclass(frozen=True)
class NativeRealTime(NativeRepartition):
    """The query, in real-time mode, is stopped, its state is repartitioned offline, and it is started again."""

    mode: ClassVar[str] = "real-time"

    def __post_init__(self) -> None:
        if self.operator != "count":
            raise UsageError("In real-time mode Spark's own operator is count: leave out the option operator.")


NATIVES = {"native-restart": NativeRestart, "native-repartition": NativeRepartition, "native-real-time": NativeRealTime}

"""The handle that a processor gets: pyspark's StatefulProcessorHandle on a worker's entries.

What a handle refuses, and when, is what Spark's `StatefulProcessorHandleImpl` refuses; errors carry Spark's conditions.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as Phase
from pyspark.sql.types import StructType

from impls.processor.encoding import Variable, in_ranges
from impls.processor.kept import EvolvedRows, History
from impls.processor.keys import KeyCodec
from impls.processor.rows import StateRowCodec
from impls.processor.scope import Scope
from impls.processor.state import ListClient, MapClient, ValueClient
from impls.store import naming

TimeMode = Literal["none", "processingtime", "eventtime"]
_Schema = StructType | str
_LONG = 1 << 63
_NAMES = {"none": "NoTime", "processingtime": "ProcessingTime", "eventtime": "EventTime"}


def _refused(what: str, condition: str, text: str) -> PySparkRuntimeError:
    return PySparkRuntimeError(f"Error {what}: [{condition}] {text}")


def _time(ms: int) -> int:
    """Returns a time as a number of 64 bits; raises ValueError for one beyond, with the text of Spark's client."""
    time = operator.index(ms)
    if not -_LONG <= time < _LONG:
        raise ValueError(f"Value out of range: {time}")
    return time


@lru_cache(maxsize=64)
def _row_codec(schema: StructType, history: History | None, where: str) -> StateRowCodec:
    return StateRowCodec(schema, where) if history is None else EvolvedRows(history, where)


@lru_cache(maxsize=64)
def _key_codec(schema: StructType, where: str) -> KeyCodec:
    return KeyCodec(schema, where)


class Handle(StatefulProcessorHandle):
    """The handle of a processor for one input; pyspark's classes of state are those that it returns.

    Attributes:
        phase: what the processor is at; state variables are made in CREATED (on the driver PRE_INIT), timers are for
            INITIALIZED and DATA_PROCESSED.
        variables: those made, by name.
        deleted: names given to `deleteIfExists`.
    """

    def __init__(
        self,
        scope: Scope,
        time_mode: TimeMode,
        parse: Callable[[str], StructType],
        histories: Mapping[str, History] | None = None,
    ):
        self._scope, self._time_mode, self._parse, self._histories = scope, time_mode, parse, histories or {}
        self.phase = Phase.CREATED
        self.variables: dict[str, Variable] = {}
        self.deleted: list[str] = []
        self._clients: dict[str, Any] = {}

    @property
    def in_ranges(self) -> bool:
        """Whether entries of the variables are read by ranges of their names."""
        return in_ranges(self.variables.values())

    def getValueState(self, stateName: str, schema: _Schema, ttlDurationMs: int | None = None) -> ValueState:
        """Returns a state variable of one value per key."""
        made = self._made("value", stateName, schema, ttlDurationMs)
        client = ValueClient(self._scope, made, self._codec(made))
        return ValueState(self._kept(client, stateName), stateName)

    def getListState(self, stateName: str, schema: _Schema, ttlDurationMs: int | None = None) -> ListState:
        """Returns a state variable of a list per key."""
        made = self._made("list", stateName, schema, ttlDurationMs)
        client = ListClient(self._scope, made, self._codec(made))
        return ListState(self._kept(client, stateName), stateName)

    def getMapState(
        self, stateName: str, userKeySchema: _Schema, valueSchema: _Schema, ttlDurationMs: int | None = None
    ) -> MapState:
        """Returns a state variable of a map per key."""
        made = self._made("map", stateName, valueSchema, ttlDurationMs, userKeySchema)
        assert made.key_schema is not None, "a map has a schema of its keys"
        keys = _key_codec(made.key_schema, made.subject)
        client = MapClient(self._scope, made, self._codec(made), keys)
        return MapState(self._kept(client, stateName), stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Sets a timer of the key; setting it again changes nothing."""
        time = _time(expiryTimestampMs)
        self._check_timers("register timer", "register_timer")
        own = naming.own_timer_name(time, self._scope.name(naming.TIMERS))
        if self._scope.read(own) is None:
            name, value = naming.timer_name(time, self._scope.key)
            self._put_timer((name, value), (own, b""))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Takes a timer of the key back; one that is not set is left alone."""
        time = _time(expiryTimestampMs)
        self._check_timers("deleting timer", "delete_timer")
        own = naming.own_timer_name(time, self._scope.name(naming.TIMERS))
        if self._scope.read(own) is not None:
            self._put_timer((naming.timer_name(time, self._scope.key)[0], None), (own, None))

    def listTimers(self) -> Iterator[int]:
        """Returns the times of the key's timers, ascending."""
        self._check_timers("listing timers", "list_timers")
        head = self._scope.name(naming.TIMERS)
        return iter([naming.time_of(name[len(head) :]) for name in self._scope.names(head)])

    def deleteIfExists(self, stateName: str) -> None:
        """Deletes a state variable and its values: of a bin's keys, as soon as one of them gets a record or a timer.

        What is done with the variable from then on fails, until it is made again.
        """
        self._check_phase("deleting state", "delete_if_exists")
        self.deleted.append(stateName)
        if self.variables.pop(stateName, None) is not None:
            self._clients[stateName].delete()

    def _codec(self, made: Variable) -> StateRowCodec:
        return _row_codec(made.schema, self._histories.get(made.name), made.subject)

    def _kept(self, client: Any, name: str) -> Any:
        """Returns a client, which also serves what was made of that name and kind before and then deleted."""
        before = self._clients.get(name)
        if type(before) is type(client):
            vars(before).clear()  # and with it what `delete` has put in place of its methods
            vars(before).update(vars(client))
            return before
        self._clients[name] = client
        return client

    def _check_timers(self, what: str, operation: str) -> None:
        """Raises Spark's errors where timers cannot be used now."""
        if self._time_mode == "none":
            raise _refused(
                what,
                "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
                f"Failed to perform stateful processor operation={operation} with invalid timeMode=NoTime.",
            )
        if self.phase not in {Phase.INITIALIZED, Phase.DATA_PROCESSED}:
            self._refuse_phase(what, operation)

    def _put_timer(self, *entries: tuple[bytes, bytes | None]) -> None:
        for name, value in entries:
            self._scope.put(name, value)
        self._scope.timed.add(self._scope.bin)

    def _check_phase(self, what: str, operation: str) -> None:
        if self.phase not in {Phase.CREATED, Phase.PRE_INIT}:
            self._refuse_phase(what, operation)

    def _refuse_phase(self, what: str, operation: str) -> None:
        raise _refused(
            what,
            "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
            f"Failed to perform stateful processor operation={operation} with invalid handle state={self.phase.name}.",
        )

    def _made(
        self,
        kind: Literal["value", "list", "map"],
        name: str,
        schema: _Schema,
        ttl_ms: int | None,
        key_schema: _Schema | None = None,
    ) -> Variable:
        what = f"initializing {kind} state"
        self._check_phase(what, f"get_{kind}_state")
        if name in self.variables:
            raise _refused(
                what,
                "STATE_STORE_DUPLICATE_STATE_VARIABLE_DEFINED",
                f"State variable with name {name} has already been defined in the StatefulProcessor.",
            )
        if not name or name.startswith("_") or name != name.strip():
            raise _refused(
                what,
                "STATE_STORE_CANNOT_USE_COLUMN_FAMILY_WITH_INVALID_NAME",
                f"A state variable cannot have the name {name!r}: it is empty, or begins with _ or a blank.",
            )
        keys = None if key_schema is None else self._schema(key_schema)
        made = Variable(name, kind, self._schema(schema), keys, self._ttl(what, name, ttl_ms))
        self.variables[name] = made
        return made

    def _schema(self, schema: _Schema) -> StructType:
        return self._parse(schema) if isinstance(schema, str) else schema

    def _ttl(self, what: str, name: str, ttl_ms: int | None) -> int | None:
        """Returns a time to live, None for none; 0 is none, as in Spark."""
        if not ttl_ms:
            return None
        ttl_ms = _time(ttl_ms)
        if self._time_mode != "processingtime":
            raise _refused(
                what,
                "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL",
                f"Cannot use TTL for state={name} in timeMode={_NAMES[self._time_mode]}, use TimeMode.ProcessingTime() "
                "instead.",
            )
        if ttl_ms < 0:
            raise _refused(
                what,
                "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
                f"TTL duration must be greater than zero for State store operation=update on state={name}.",
            )
        return ttl_ms

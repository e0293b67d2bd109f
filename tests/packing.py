"""The packer of the JVM, fed as its model is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema

from impls.protocol.session import Route, Routed
from impls.realtime.blobs import Blob, decode
from impls.realtime.link import from_json
from impls.realtime.wire import CONSTANTS
from impls.spark.compiled import new_object
from impls.spark.realtime import runner

FOLDER = Path(runner.__file__).parent
SLOTS = 3
PLENTY = [1 << 30] * SLOTS


def array_of(spark: Any, kind: str, values: Sequence[int]) -> Any:
    """An array of the JVM's."""
    gateway = spark.sparkContext._gateway
    array = gateway.new_array(getattr(gateway.jvm, kind), len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


@dataclass
class Packer:
    """The JVM's packer, fed as the model is."""

    spark: Any
    df: Any
    slots: int = SLOTS
    source: int = 4
    rows: list[Any] = field(default_factory=list)

    def __post_init__(self):
        schema = self.df._jdf.schema().json()
        path = FOLDER / "Packer.java"
        self.packer = new_object(self.spark, path, self.source, self.slots, schema, constants=CONSTANTS)
        self.arrow = to_arrow_schema(self.df.schema, timezone="UTC")
        self.rows = self.rows or list(self.df._jdf.queryExecution().executedPlan().executeCollect())

    def switch(self, route: Route) -> Routed:
        routing = array_of(self.spark, "int", route.routing.tolist())
        return from_json(self.packer.route(route.epoch, routing, route.last).encode())

    def await_until(self, until: dict[int, int], most_ms: int) -> None:
        mapper = self.spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self.packer.awaitUntil(mapper.readTree(json.dumps(list(until.items()))), most_ms)

    def pack(self, places: Sequence[int], room: Sequence[int] = PLENTY, times: tuple[int, int] = (-1, -1)) -> Any:
        """(records taken, room left, blobs) of the rows at these places."""
        records, out = self.spark._jvm.java.util.ArrayList(), self.spark._jvm.java.util.ArrayList()
        for place in places:
            records.add(self.rows[place])
        left = array_of(self.spark, "long", room)
        taken = self.packer.pack(records, 0, left, *times, out)
        return taken, list(left), [(entry.getKey(), bytes(entry.getValue())) for entry in out]

    def decoded(self, raw: bytes) -> Blob:
        return decode(raw, self.arrow)

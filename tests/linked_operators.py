"""The operators of two linked queries; executors get this file alone."""

import os
import signal
from pathlib import Path
from typing import Any

from impls.operators import StatefulMap
from impls.operators.timed import KeyedProcess
from impls.protocol.eventtime import EventTime
from impls.worker import output


class Deadly:
    """Kills its process with -9 once, behind the results of a commit, when the file is there; "" is none."""

    def __init__(self, file: str):
        self.file = file

    def _may_die(self) -> None:
        file, send = Path(self.file), output.Output.send
        if not self.file or not file.exists() or send.__name__ == "sent":
            return

        def sent(*given: Any, **more: Any) -> None:
            send(*given, **more)
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

        output.Output.send = sent


class Tally(Deadly, StatefulMap):
    """Counts the records of a key."""

    columns = ("scheduled_us",)

    def update(self, key, record, state):
        self._may_die()
        return (state or 0) + 1, {"name": int.from_bytes(key, "big"), "n": (state or 0) + 1}


class Follow(Deadly, StatefulMap):
    """Counts the results of a key; each must have a higher count than the one before it."""

    columns = ("n",)

    def update(self, key, record, state):
        self._may_die()
        seen, last = state or (0, 0)
        if record["n"] <= last:
            raise ValueError(f"count {record['n']} of {key!r} behind count {last}")
        return (seen + 1, record["n"]), {"seen": seen + 1, "n": record["n"]}


class Times(StatefulMap):
    """Counts the records of a key."""

    columns = ()

    def update(self, key, record, state):
        return (state or 0) + 1, {"times": (state or 0) + 1}


SIZE, DISORDER = 10, 5


class Counts(Deadly, KeyedProcess):
    """Counts the records of a key in each window; the result comes when the window's end is reached."""

    event_time = EventTime("at", disorder=DISORDER, partitions=2)
    columns = ("at",)

    def record(self, record, context):
        self._may_die()
        end = context.time - context.time % SIZE + SIZE
        context.set_value((context.value(str(end)) or 0) + 1, str(end))
        context.set_timer(end)

    def timer(self, context):
        end = context.time
        context.emit({"end": end, "name": int.from_bytes(context.key, "big"), "n": context.value(str(end))})
        context.set_value(None, str(end))


class Highest(Deadly, KeyedProcess):
    """Finds the highest count of each window, and whose it is."""

    event_time = EventTime("end")
    columns = ("end", "name", "n")

    def record(self, record, context):
        self._may_die()
        most, names = context.value() or (0, [])
        if record["n"] >= most:
            names = [*(names if record["n"] == most else []), record["name"]]
            context.set_value((record["n"], sorted(names)))
            context.set_timer(context.time)

    def timer(self, context):
        most, names = context.value()
        context.emit({"end": context.time, "n": most, "names": names})
        context.set_value(None)


class Spread(Deadly, KeyedProcess):
    """Counts by number, in windows twice as long, the results that had it."""

    event_time = EventTime("end")
    columns = ("end", "n")

    def record(self, record, context):
        self._may_die()
        end = -(-context.time // (2 * SIZE)) * 2 * SIZE
        context.set_value((context.value(str(end)) or 0) + 1, str(end))
        context.set_timer(end)

    def timer(self, context):
        end = context.time
        number = int.from_bytes(context.key, "big")
        context.emit({"end": end, "n": number, "times": context.value(str(end))})
        context.set_value(None, str(end))

"""A program that runs a folder in a process of its own, from both sides: runs, queries under faults, measurements.

`python -m MODULE FOLDER` does what the files of FOLDER say. Whoever starts it holds its standard input: the line `go`
lets it begin where it waits for that, and when the input ends the program ends, so that nothing outlives the one who
started it. On its standard output are lines of JSON; the last one of a program that fails has an `error`, a sentence of
this project's, or a `crash`, anything else. Exit codes: 0 done, 1 failed, 2 bad input, 3 crashed, 130 cut off.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from generators.spec import GeneratorError
from generators.stdin import Stop, watch_stdin
from harness.files import ROOT
from harness.options import CUT_OFF
from impls.closing import Closing
from impls.errors import InvalidPlanError, StateError, UsageError

_END_DEADLINE_S = 60.0


class Cancelled(Exception):  # noqa: N818 - asked for, not a failure
    """The program was cut off by a signal or by the end of its standard input."""


@dataclass(frozen=True)
class Parent:
    """What a program knows of the one who started it.

    Attributes:
        gone: set when standard input has ended, or a signal has come.
        go: set by the line `go`.
    """

    gone: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def tell(self, words: Mapping[str, Any]) -> None:
        """Writes a line."""
        with contextlib.suppress(BrokenPipeError):  # nobody is there any more, which the end of the input says
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()


def program(work: Callable[[Path, Parent], object], *, patient: bool = True) -> int:
    """Does the work in the folder that the command line names, and returns the exit code.

    Args:
        work: gets the folder and the parent.
        patient: the work looks whether its parent is gone; otherwise the process ends at once when it is.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parent = Parent(Stop.on_signals() if patient else threading.Event())
    over: Callable[[], object] = parent.gone.set if patient else lambda: os._exit(CUT_OFF)
    watch_stdin(over, on_words=lambda _: parent.go.set())
    return _carried_out(lambda: work(Path(sys.argv[1]), parent), parent)


def _carried_out(work: Callable[[], object], parent: Parent) -> int:
    """Does the work and returns the exit code; the last words say why it failed."""
    try:
        work()
    except Cancelled:
        return CUT_OFF
    except (UsageError, GeneratorError) as error:
        parent.tell({"error": str(error)})
        return 2
    except (StateError, InvalidPlanError) as error:
        parent.tell({"error": str(error)})
        return 1
    except (
        Exception
    ) as error:  # also the JVM's, which may be dead: whatever is left of a session says so in its own way
        traceback.print_exc()
        words = str(error).strip().splitlines()[:2]  # of an error of the JVM's the second one says what it is
        parent.tell({"crash": ": ".join([type(error).__name__, *(word.strip(": ") for word in words)])})
        return 3
    return 0


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a program ended: its exit code, negative for a signal, its sentence if it had one, and any other words.

    `late`: it was killed because it had not ended in time.
    """

    code: int
    sentence: str | None = None
    crash: str | None = None
    late: bool = False

    def __str__(self) -> str:
        """Returns in a sentence how it ended."""
        known = {number.value: number.name for number in signal.Signals}
        if self.late:
            return "The process did not end in time, and was killed."
        killed = f"The process was killed by {known.get(-self.code, f'signal {-self.code}')}."
        how = killed if self.code < 0 else f"The process ended with exit code {self.code}."
        return self.sentence or self.crash or how


class Child(Closing):
    """The process of a program, started with its folder; close() ends it, by its own cleaning up if that is quick.

    Its log is `log` in the folder. What it says is for `lines`, or goes to the file `said` in the folder.
    """

    def __init__(
        self, module: str, folder: Path, *arguments: str, log: str = "run.log", said: str = "",
        env: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.folder, self._last = folder, dict[str, Any]()
        self._said = folder / said if said else None
        self._log = (folder / log).open("ab")
        with contextlib.nullcontext() if self._said is None else self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder), *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE if out is None else out, stderr=self._log, cwd=ROOT,
                start_new_session=True, env={**os.environ, **(env or {})},
            )  # fmt: skip
        self.pid = self._process.pid

    def go(self) -> None:
        """Lets it begin; of one that has died already `lines` ends."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yields what it says until it ends; a library's own words on standard output are passed over."""
        assert self._process.stdout is not None, "what it says does not go to a file"
        for raw in self._process.stdout:
            if (line := _line_of(raw)) is not None:
                self._last = line
                yield line

    def ended(self) -> ProcessEnd | None:
        """Returns how it ended, None while it runs."""
        code = self._process.poll()
        return None if code is None else self._end(code)

    def wait(self, deadline_s: float = _END_DEADLINE_S) -> ProcessEnd:
        """Returns how it ended, which is to be soon; behind the deadline it is killed."""
        try:
            return self._end(self._process.wait(deadline_s))
        except subprocess.TimeoutExpired:
            self.kill()
            return replace(self._end(self._process.wait(_END_DEADLINE_S)), late=True)

    def _end(self, code: int) -> ProcessEnd:
        if self._said is not None:
            lines = map(_line_of, self._said.read_bytes().splitlines())
            self._last = next((line for line in reversed(list(lines)) if line is not None), {})
        return ProcessEnd(code, self._last.get("error"), self._last.get("crash"))

    def kill(self) -> None:
        """Kills it; what it has started is left."""
        self._process.kill()

    def close(self) -> None:
        """Ends its standard input, and returns when it has ended; one that does not in a minute is killed."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def _line_of(raw: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        line = json.loads(raw)
        return line if isinstance(line, dict) else None
    return None

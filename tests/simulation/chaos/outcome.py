"""How a simulated run ended, and what a number of runs amounts to."""

import contextlib
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        violation: None, or the check that failed; `sentence` says all.
        digest: of everything that was sent, written and observed.
        epochs, starts, steps: how many.
        fired: faults that happened, by kind.
        recoveries: environments rebuilt.
        network: bytes that came from other hosts, and how pulls between them ended.
    """

    seed: int
    violation: str | None
    sentence: str
    digest: str
    epochs: int
    starts: int
    steps: int
    fired: Counter[str]
    recoveries: int
    network: Counter[str] = field(default_factory=Counter)


@dataclass
class Totals:
    """What a number of runs amounts to."""

    runs: int = 0
    epochs: int = 0
    starts: int = 0
    steps: int = 0
    recoveries: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    network: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    def add(self, outcome: Outcome) -> None:
        """Takes in a run; the digest depends on the order."""
        self.runs += 1
        for name in ("epochs", "starts", "steps", "recoveries"):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        self.fired += outcome.fired
        self.network += outcome.network
        self.digest = hashlib.sha256((self.digest + outcome.digest).encode()).hexdigest()


@contextlib.contextmanager
def _slow_machine() -> Iterator[None]:
    """Between two looks at the clock a minute passes."""
    minutes = itertools.count(60.0, 60.0)
    with contextlib.ExitStack() as stack:
        for name in ("monotonic", "perf_counter"):
            stack.enter_context(mock.patch.object(time, name, minutes.__next__))
        yield


def assert_one_digest(outcome_of, seed):
    """Two runs of a seed are one, on whatever machine, and the next seed's is another."""
    once = outcome_of(seed)
    with _slow_machine():
        twice = outcome_of(seed)
    assert once == twice
    assert once.digest != outcome_of(seed + 1).digest

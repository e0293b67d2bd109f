"""What goes wrong, and when: processes that die where they are, a disk that is full, environments that are lost."""

from collections import Counter
from random import Random

from chaos.fibers import Killed

from realtime.parameters import Parameters

_OF_TASK = {
    "after-commit": "task", "before-results": "task", "before-report": "task", "logged": "task", "sending": "send",
    "during-pull": "deep", "during-snapshot": "deep", "during-recovery": "deep", "tear": "tear",
}  # fmt: skip
_OF_DRIVER = {
    "before-plan": "driver", "after-plan": "driver", "between-pull-and-drop": "driver", "before-epoch-commit": "driver",
    "after-append": "journal", "job": "job",
}  # fmt: skip


class Troubles:
    """Decides at each point whether something goes wrong.

    Attributes:
        on: nothing goes wrong while this is False.
        task: the worker or router that runs, None for the driver.
        fired: what has gone wrong, by kind.
    """

    def __init__(self, p: Parameters):
        self._p, self._random = p, Random(p.seed + 2)
        self.on = True
        self.task: int | None = None
        self.fired: Counter[str] = Counter()

    def hit(self, kind: str) -> bool:
        """Returns whether something of a kind goes wrong now."""
        if not self.on or self.fired.total() >= self._p.most or self._random.random() >= self._p.rates.get(kind, 0.0):
            return False
        self.fired[kind] += 1
        return True

    def point(self, name: str) -> int:
        """A point in the code of a task or of the driver, where it may die; "part", "full", "damage" have an answer."""
        if name == "part":
            return self._random.randrange(100)
        if name in {"full", "damage"}:
            return self.hit(name)
        known = _OF_DRIVER if self.task is None else _OF_TASK
        kind = known.get(name) or ("deep" if self.task is not None and name.endswith("-write") else None)
        if kind is not None and self.hit(kind):
            raise Killed
        return 0

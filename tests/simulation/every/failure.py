"""The one failure of a small world: a worker's task dies at a place that is a choice."""

from collections import Counter

from chaos.fibers import Killed

from every.choices import Choices

_POINTS = {"after-commit", "tear", "logged", "sending", "during-snapshot", "after-write", "before-report"}
_HALF = 50  # percent of a frame that are written when its writer dies


class Failure:
    """Stands for `realtime.troubles.Troubles`: at each point behind which something is durable a worker may die.

    Attributes:
        left: failures that may still happen.
        task: the worker that runs, None for another.
        on: something may fail.
        fired: failures that happened, by place.
    """

    def __init__(self, choices: Choices, left: int):
        self._choices, self.left = choices, left
        self.on, self.task = True, None
        self.fired: Counter[str] = Counter()

    @property
    def possible(self) -> bool:
        """Whether a failure may still happen."""
        return self.on and self.left > 0

    def happens(self, where: str) -> None:
        """Takes in that it has happened."""
        self.left -= 1
        self.fired[where] += 1

    def point(self, name: str) -> int:
        """A point in the code of the driver or a worker; raises Killed where the worker dies."""
        if name == "part":
            return _HALF
        if self.task is not None and name in _POINTS and self.possible and self._choices.pick((0, 0)):
            self.happens(name)
            raise Killed
        return 0

    def hit(self, kind: str) -> bool:
        """Nothing else goes wrong."""
        del kind
        return False

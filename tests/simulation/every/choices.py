"""What a run chooses where several things can happen: a given beginning, and then the first of them each time."""

from collections.abc import Sequence


class SeenBefore(Exception):  # noqa: N818 - a signal to the search
    """The run has come to a state from which another run has gone on."""


class Choices:
    """pick() wherever there is a choice; `state` names the state before it.

    Attributes:
        taken: what was picked so far, a byte each.
        open: (place, costs) of the choices behind the beginning, all of which took their first.
        deviations: costs of what was picked.
        seen: digests of the states that runs have come to; this one adds to them.
    """

    def __init__(self, beginning: bytes, seen: set[bytes]):
        self._beginning, self.seen = beginning, seen
        self.taken = bytearray()
        self.open: list[tuple[int, Sequence[int]]] = []
        self.deviations = 0

    @property
    def replaying(self) -> bool:
        """Whether the next choice is in the beginning."""
        return len(self.taken) < len(self._beginning)

    def state(self, digest: bytes) -> None:
        """Takes in the state before the next choice; raises SeenBefore when a run has gone on from it."""
        if digest in self.seen:
            raise SeenBefore
        self.seen.add(digest)

    def pick(self, costs: Sequence[int]) -> int:
        """Returns which of several things happens; each costs so many deviations, the first none."""
        at = len(self.taken)
        chosen = self._beginning[at] if self.replaying else 0
        if not self.replaying:
            self.open.append((at, costs))
        self.taken.append(chosen)
        self.deviations += costs[chosen]
        return chosen


def text_of(taken: bytes) -> str:
    """Returns choices in short, as `place:choice` of those that are not the first; "-" for none."""
    return ",".join(f"{at}:{chosen}" for at, chosen in enumerate(taken) if chosen) or "-"


def choices_of(text: str) -> bytes:
    """Returns the choices that `text_of` has written; raises ValueError for another text."""
    if text == "-":
        return b""
    pairs = [(int(at), int(chosen)) for at, _, chosen in (pair.partition(":") for pair in text.split(","))]
    found = bytearray(1 + max(at for at, _ in pairs))
    for at, chosen in pairs:
        found[at] = chosen
    return bytes(found)

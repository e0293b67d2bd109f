"""Whether a bin's results can be explained: some order of its records gives exactly these, turn by turn.

Records of an input partition are applied in the order of their offsets, and how those of several partitions interleave
is not known. So a turn is explained if from a place in every partition, which the turns before may have reached, the
next records of each are together those that the turn has counted. A result that is missing in the middle leaves a turn
that nothing explains: a later one would count a record that lies before what is applied already.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["UndecidedError", "unexplained"]

_PLACES_MOST = 256  # that the turns so far may have reached, and _STEPS_MOST to look for those of a turn
_STEPS_MOST = 20_000

Place = tuple[int, ...]
Turn = Mapping[int, int]


class UndecidedError(Exception):
    """There are too many ways in which the records may have interleaved."""


def unexplained(inputs: Sequence[Sequence[int]], turns: Sequence[Turn]) -> int | None:
    """Returns the place of the first turn that nothing explains, None where each can be.

    Args:
        inputs: the bin's keys in each input partition, in the order of their offsets.
        turns: by how much each turn's results raise the count of a key.

    Raises:
        UndecidedError: it would take too long to say.
    """
    places: set[Place] = {(0,) * len(inputs)}
    for number, turn in enumerate(turns):
        places = {after for place in places for after in _after(inputs, place, turn)}
        if not places:
            return number
        if len(places) > _PLACES_MOST:
            raise UndecidedError
    return None


def _after(inputs: Sequence[Sequence[int]], place: Place, turn: Turn) -> Iterator[Place]:
    """Yields the places that a turn may have reached from one."""
    total = sum(turn.values())
    if len(inputs) == 2:
        yield from _slid(inputs, place, turn, total)
        return
    seen, left = {place}, [place]
    while left:
        here = left.pop()
        if sum(here) - sum(place) == total:
            yield here
            continue
        for part in _open(inputs, place, here, turn):
            step = (*here[:part], here[part] + 1, *here[part + 1 :])
            if step not in seen:
                seen.add(step)
                left.append(step)
        if len(seen) > _STEPS_MOST:
            raise UndecidedError


def _open(inputs: Sequence[Sequence[int]], start: Place, here: Place, turn: Turn) -> Iterator[int]:
    """Yields the partitions whose next record the turn may have counted, beside those on the way here."""
    ways = zip(inputs, start, here, strict=True)
    taken = Counter(key for keys, low, high in ways for key in keys[low:high])
    for part, at in enumerate(here):
        if at < len(inputs[part]) and taken[key := inputs[part][at]] < turn.get(key, 0):
            yield part


def _slid(inputs: Sequence[Sequence[int]], place: Place, turn: Turn, total: int) -> Iterator[Place]:
    """Yields what `_after` does, of two partitions: n records of the first and all others of the second, for each n."""
    (one, other), (low, lower) = inputs, place
    first = max(0, total - (len(other) - lower))
    last = min(total, len(one) - low)
    if first > last:
        return
    over = Counter(one[low : low + first])
    over.update(other[lower : lower + total - first])
    over.subtract(turn)
    wrong = sum(bool(n) for n in over.values())
    for n in range(first, last + 1):
        if not wrong:
            yield low + n, lower + total - n
        if n < last:
            for key, by in ((one[low + n], 1), (other[lower + total - n - 1], -1)):
                before = over[key]
                over[key] = before + by
                wrong += bool(before + by) - bool(before)

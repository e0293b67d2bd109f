"""Which tests a run has: the loop (`--fast`), the suite (one hand of five), or all; tests/README.md says what for.

Every decision is a function of a test's markers, name and stored time, so that a run can be foretold and repeated.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.cli.development import HANDS

__all__ = ["COSTLY_S", "HANDS", "Traits", "deal", "hand_of", "in_loop", "in_suite", "store_costs"]

COSTLY_S = 4.0  # what takes as long is dealt by its time: by a hash alone one hand took 1.3 times as long as another
_COSTS = Path(__file__).parent / "costs.json"


@dataclass(frozen=True)
class Traits:
    """What decides over a test.

    Attributes:
        name: its node id.
        lengthy: takes a second or more, or is in a folder that the loop does not read.
        sampled: the loop has one case in so many; 1 for a test that is no case of a sampled one.
        capability: the suite always has it, as the one real run of something the product can do.
    """

    name: str
    lengthy: bool = False
    sampled: int = 1
    capability: bool = False


def in_loop(test: Traits) -> bool:
    """Whether the loop has a test: nothing lengthy, and of sampled cases one in so many, always the same ones."""
    return not test.lengthy and _number(test.name) % test.sampled == 0


def hand_of(test: Traits) -> int:
    """Returns the hand, from 0, into which a test is dealt: by its stored time, or else by a hash of its name."""
    return _dealt().get(test.name, _number(test.name) % HANDS)


def deal(costs: Mapping[str, float]) -> dict[str, int]:
    """Deals tests by their times in seconds: the longest first, each into the hand that takes least so far."""
    hands, load = {}, [0.0] * HANDS
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        hands[name] = load.index(min(load))
        load[hands[name]] += costs[name]
    return hands


def in_suite(test: Traits, hands: Iterable[int]) -> bool:
    """Whether the suite has a test when it plays these hands."""
    return in_loop(test) or test.capability or hand_of(test) in hands


def store_costs(seconds: Mapping[str, float]) -> None:
    """Writes the times by which costly tests are dealt."""
    costly = {name: round(took) for name, took in seconds.items() if took >= COSTLY_S}
    _COSTS.write_text(json.dumps(costly, indent=1, sort_keys=True) + "\n")


@cache
def _dealt() -> dict[str, int]:
    return deal(json.loads(_COSTS.read_text()))


def _number(name: str) -> int:
    return zlib.crc32(name.encode())

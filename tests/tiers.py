"""Which tests a run has: the loop (`--fast`), the suite (one hand of five), or all; tests/README.md says what for.

Every decision is a function of a test's markers and name, so that a run can be foretold and repeated.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from harness.cli.development import HANDS

__all__ = ["HANDS", "Traits", "hand_of", "in_loop", "in_suite"]


@dataclass(frozen=True)
class Traits:
    """What decides over a test.

    Attributes:
        name: its node id.
        lengthy: takes a second or more, or is in a folder that the loop does not read.
        sampled: the loop has one case in so many; 1 for a test that is no case of a sampled one.
        capability: the suite always has it, as the one real run of something the product can do.
        together: its file's fixtures cost more than its tests, so that the file is dealt as a whole.
    """

    name: str
    lengthy: bool = False
    sampled: int = 1
    capability: bool = False
    together: bool = False


def in_loop(test: Traits) -> bool:
    """Whether the loop has a test: nothing lengthy, and of sampled cases one in so many, always the same ones."""
    return not test.lengthy and _number(test.name) % test.sampled == 0


def hand_of(test: Traits) -> int:
    """Returns the hand, from 0, into which a test is dealt."""
    return _number(test.name.partition("::")[0] if test.together else test.name) % HANDS


def in_suite(test: Traits, hands: Iterable[int]) -> bool:
    """Whether the suite has a test when it plays these hands."""
    return in_loop(test) or test.capability or hand_of(test) in hands


def _number(name: str) -> int:
    return zlib.crc32(name.encode())

"""Fencing tokens: who may write a bin, and since which epoch."""

from dataclasses import dataclass

__all__ = ["Token"]


@dataclass(frozen=True, slots=True, order=True)
class Token:
    """The right to write one bin; of two the larger one is the later.

    It follows from the plan that moved the bin alone, so every attempt of an epoch derives the same.

    Attributes:
        generation: that of the plan.
        epoch: the epoch in which the bin moved, 0 for where it was created.
        worker: the owner from then on.
    """

    generation: int
    epoch: int
    worker: int

    def encode(self) -> bytes:
        """Returns the token as stored."""
        return b"%d.%d.%d" % (self.generation, self.epoch, self.worker)

    @classmethod
    def decode(cls, raw: bytes) -> "Token":
        """Reads what `encode` wrote."""
        return cls(*map(int, raw.split(b".")))

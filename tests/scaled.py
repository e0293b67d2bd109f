"""The ideal query of an autoscaler: workers of one true rate, no skew, rescales that take no time."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from impls.autoscale import Interval
from impls.autoscale.loop import Autoscaler, AutoscaleSettings, Decided


@dataclass
class IdealQuery:
    """run() an interval at an offered rate and let the policy decide.

    With `noise` the useful time that a worker tells is off by up to that share, drawn from the seed.
    """

    policy: str
    rate: float = 1000.0  # records per second of useful time
    workers: int = 1
    most: int = 64
    interval_s: float = 10.0
    cooldown_s: float = 0.0
    noise: float = 0.0
    seed: int = 0
    backlog: float = 0.0
    now_s: float = 0.0
    decided: list[Decided] = field(default_factory=list)

    def __post_init__(self):
        self.draw = np.random.default_rng(self.seed)
        settings = AutoscaleSettings(self.policy, 1, self.most, self.interval_s, self.cooldown_s, warmup=0)
        self.loop = Autoscaler(settings)

    def interval(self, offered):
        """Returns the next interval at an offered rate."""
        before, able = self.backlog, self.workers * self.rate * self.interval_s
        due = self.backlog + offered * self.interval_s
        done = min(due, able)
        self.backlog, begin = due - done, self.now_s
        self.now_s += self.interval_s
        off = 1 + self.noise * self.draw.uniform(-1, 1, self.workers) if self.noise else np.ones(self.workers)
        each = done / self.workers
        return Interval(
            begin, self.now_s, self.workers, offered, (each,) * self.workers,
            tuple(np.minimum(each / self.rate * off, self.interval_s)) if self.noise == 0 else
            tuple(each / self.rate * off), self.backlog, before,
        )  # fmt: skip

    def run(self, offered, intervals=1):
        """Runs intervals and returns the numbers of workers behind each."""
        out = []
        for _ in range(intervals):
            decided = self.loop.decide(self.interval(offered))
            self.decided.append(decided)
            self.workers = decided.wanted or self.workers
            out.append(self.workers)
        return out

    @property
    def rescales(self):
        """(before, after) of each rescale."""
        return [(one.workers, one.wanted) for one in self.decided if one.wanted is not None]


def turns(rescales):
    """How often the direction of rescales changes."""
    signs = [np.sign(after - before) for before, after in rescales]
    return sum(a != b for a, b in pairwise(signs))

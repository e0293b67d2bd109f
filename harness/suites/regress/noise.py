"""Comparisons of a revision with itself, drawn from one pool of runs: how often chance alone finds it worse."""

from typing import Any

import numpy as np

from harness.suites.regress.compare import Runs, compare
from harness.suites.regress.decide import Verdict

__all__ = ["resampled"]


def resampled(pool: Runs, number: int, seed: int = 1) -> list[tuple[Verdict, dict[str, Any]]]:
    """Returns what each of `number` comparisons says; in every one the second round is drawn again as well.

    A round has as many pairs as the pool: drawn from it with replacement, each with its sides either way round, so that
    what differs within a pair is what this machine does in the time of two runs.
    """
    draw = np.random.default_rng(seed)
    pairs = list(zip(pool["base"], pool["head"], strict=True))

    def drawn() -> Runs:
        chosen = draw.integers(0, len(pairs), len(pairs)).tolist()
        swaps = draw.integers(0, 2, len(pairs)).tolist()
        turned = [pairs[i][::-1] if swap else pairs[i] for i, swap in zip(chosen, swaps, strict=True)]
        return {"base": [base for base, _ in turned], "head": [head for _, head in turned]}

    return [compare(drawn(), drawn) for _ in range(number)]

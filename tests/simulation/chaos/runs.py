"""Many seeds, one after another or in several processes, up to the first violation."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from chaos.outcome import Outcome
from chaos.parameters import draw
from chaos.query import simulate

_CHUNK = 5


def run_chunk(seeds: list[int]) -> list[Outcome]:
    """Runs seeds up to the first violation."""
    outcomes = []
    for seed in seeds:
        outcomes.append(simulate(draw(seed)))
        if outcomes[-1].violation:
            break
    return outcomes


def run_seeds(seeds: range, jobs: int) -> Iterator[Outcome]:
    """Yields the outcome of every seed, in the order of seeds; ends behind the first violation."""
    chunks = [list(seeds[at : at + _CHUNK]) for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from _until_violation(map(run_chunk, chunks))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            yield from _until_violation(pool.map(run_chunk, chunks))
        finally:
            pool.shutdown(cancel_futures=True)


def _until_violation(answers: Iterator[list[Outcome]]) -> Iterator[Outcome]:
    for outcomes in answers:
        for outcome in outcomes:
            yield outcome
            if outcome.violation:
                return

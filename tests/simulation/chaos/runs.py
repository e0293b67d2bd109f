"""Many seeds, one after another or in several processes, up to the first violation."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from chains import parameters as chained
from chains.runs import simulate as simulate_chain
from realtime import parameters as real_time
from realtime.runs import simulate as simulate_real_time

from chaos.host_parameters import draw_on_hosts
from chaos.outcome import Outcome
from chaos.parameters import draw
from chaos.query import simulate

_CHUNK = 5
KINDS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Outcome]]] = {
    "micro-batch": (draw, simulate),
    "real-time": (real_time.draw, simulate_real_time),
    "hosts": (draw_on_hosts, simulate),
    "chains": (chained.draw, simulate_chain),
}
"""What can be simulated: what a seed decides, and how that is run."""


def run_chunk(seeds: list[int], *, kind: str) -> list[Outcome]:
    """Runs seeds up to the first violation."""
    outcomes, (drawn, run) = [], KINDS[kind]
    for seed in seeds:
        try:
            outcomes.append(run(drawn(seed)))
        except Exception as error:
            error.add_note(f"It was seed {seed}.")
            raise
        if outcomes[-1].violation:
            break
    return outcomes


def run_seeds(seeds: range, jobs: int, *, kind: str) -> Iterator[Outcome]:
    """Yields the outcome of every seed, in the order of seeds; ends behind the first violation."""
    run = partial(run_chunk, kind=kind)
    chunks = [list(seeds[at : at + _CHUNK]) for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from _until_violation(map(run, chunks))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            yield from _until_violation(pool.map(run, chunks))
        finally:
            pool.shutdown(cancel_futures=True)


def _until_violation(answers: Iterator[list[Outcome]]) -> Iterator[Outcome]:
    for outcomes in answers:
        for outcome in outcomes:
            yield outcome
            if outcome.violation:
                return

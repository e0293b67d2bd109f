"""Many seeds, one after another or in several processes, up to the first violation."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from realtime import parameters as real_time
from realtime.runs import simulate as simulate_real_time

from chaos.host_parameters import draw_on_hosts
from chaos.outcome import Outcome
from chaos.parameters import Parameters, draw
from chaos.query import simulate

_CHUNK = 5


def run_chunk(seeds: list[int], *, hosts: bool, realtime: bool = False) -> list[Outcome]:
    """Runs seeds up to the first violation."""
    outcomes = []
    for seed in seeds:
        try:
            outcome = simulate_real_time(real_time.draw(seed)) if realtime else simulate(drawn(seed, hosts=hosts))
        except Exception as error:
            error.add_note(f"It was seed {seed}.")
            raise
        outcomes.append(outcome)
        if outcomes[-1].violation:
            break
    return outcomes


def drawn(seed: int, *, hosts: bool) -> Parameters:
    """Returns what a seed decides, for one host or for a cluster of them."""
    return draw_on_hosts(seed) if hosts else draw(seed)


def run_seeds(seeds: range, jobs: int, *, hosts: bool = False, realtime: bool = False) -> Iterator[Outcome]:
    """Yields the outcome of every seed, in the order of seeds; ends behind the first violation."""
    run = partial(run_chunk, hosts=hosts, realtime=realtime)
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

"""`./inv simulate`: seeds one after another until one violates something that must hold; exit code 1 then."""

import argparse
import time
from collections.abc import Iterable, Iterator

from every.cli import explore_all, replay
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from chaos.outcome import Outcome, Totals
from chaos.runs import KINDS, run_seeds


def main() -> int:
    """Runs what the command line asks for and returns the exit code."""
    parser = argparse.ArgumentParser(prog="./inv simulate")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--hosts", action="store_true", help="on clusters of two to five hosts, which fail too")
    parser.add_argument("--mode", choices=("micro-batch", "real-time"), default="micro-batch")
    parser.add_argument("--chains", action="store_true", help="two or three queries in real time that read one another")
    parser.add_argument("--exhaustive", action="store_true", help="a small world in every order of its events")
    parser.add_argument("--minutes", type=float, default=10.0, help="time of --exhaustive, for all mechanisms")
    parser.add_argument("--replay", help="MECHANISM=CHOICES of a violation that --exhaustive has found")
    asked = parser.parse_args()
    if asked.hosts and (asked.chains or asked.mode == "real-time"):
        parser.error("Real-time mode runs on one host: leave out --hosts, or --mode real-time and --chains.")
    kind = "chains" if asked.chains else "hosts" if asked.hosts else asked.mode
    console = Console(highlight=False, soft_wrap=True)
    if asked.replay is not None:
        return replay(console, asked.replay)
    if asked.exhaustive:
        return explore_all(console, minutes=asked.minutes, jobs=asked.jobs)
    if asked.seed is not None:
        found = KINDS[kind][0](asked.seed)
        console.print(f"seed {asked.seed}: {found}", *map(str, found.faults), sep="\n  ", markup=False)
        return _run(console, range(asked.seed, asked.seed + 1), 1, kind)
    return _run(console, range(asked.first, asked.first + asked.seeds), asked.jobs, kind)


_LINE_S = 60.0  # between two lines that say how far a run is, where no bar can
_AGAIN = {"hosts": " --hosts", "real-time": " --mode real-time", "chains": " --chains"}


def _run(console: Console, seeds: range, jobs: int, kind: str) -> int:
    totals, start = Totals(), time.monotonic()
    try:
        for outcome in _watched(console, run_seeds(seeds, jobs, kind=kind), len(seeds)):
            totals.add(outcome)
            if outcome.violation:
                console.print(outcome.sentence, markup=False)
                console.print(f"Again: ./inv simulate --seed {outcome.seed}{_AGAIN.get(kind, '')}", markup=False)
                return 1
    except KeyboardInterrupt:
        left = f"--seeds {len(seeds) - totals.runs} --first {seeds.start + totals.runs}{_AGAIN.get(kind, '')}"
        console.print(f"Interrupted after {totals.runs} seeds without a violation; go on with ./inv simulate {left}")
        return 130
    _say(console, totals, kind, time.monotonic() - start)
    return 0


def _watched(console: Console, outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """Yields outcomes; a bar shows how far a run is, a line each minute where there is no terminal for it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    line = time.monotonic() + _LINE_S
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("simulating", total=count)
        for number, outcome in enumerate(outcomes, 1):
            progress.advance(task)
            if outcome.violation:
                progress.stop()
            elif not console.is_terminal and time.monotonic() >= line:
                console.print(f"{number} of {count} seeds: no violation", markup=False)
                line = time.monotonic() + _LINE_S
            yield outcome


def _say(console: Console, totals: Totals, kind: str, seconds: float) -> None:
    if kind == "hosts":
        pulls = ", ".join(f"{number} {name}" for name, number in sorted(totals.network.items()))
        console.print(f"Pulls between hosts: {pulls}.", markup=False)
    faults = ", ".join(f"{number} {kind}" for kind, number in sorted(totals.fired.items()))
    rebuilt = "sessions" if kind in {"real-time", "chains"} else "environments rebuilt"
    console.print(
        f"{totals.runs} seeds, {totals.epochs} epochs, {totals.starts} starts of the driver, {totals.recoveries} "
        f"{rebuilt}; faults: {faults or 'none'}; 0 violations in {seconds:.0f} s; digest "
        f"{totals.digest[:16]}",
        markup=False,
    )

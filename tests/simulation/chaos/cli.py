"""`./inv simulate`: seeds one after another until one violates something that must hold; exit code 1 then."""

import argparse
import time

from every.cli import explore_all, replay
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from chaos.outcome import Totals
from chaos.runs import KINDS, run_seeds


def main() -> int:
    """Runs what the command line asks for and returns the exit code."""
    parser = argparse.ArgumentParser(prog="./inv simulate")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds, from 0 on")
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
    return _run(console, range(asked.seeds), asked.jobs, kind)


_AGAIN = {"hosts": " --hosts", "real-time": " --mode real-time", "chains": " --chains"}


def _run(console: Console, seeds: range, jobs: int, kind: str) -> int:
    totals, start = Totals(), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("simulating", total=len(seeds))
        for outcome in run_seeds(seeds, jobs, kind=kind):
            totals.add(outcome)
            progress.advance(task)
            if outcome.violation:
                progress.stop()
                console.print(outcome.sentence, markup=False)
                console.print(f"Again: ./inv simulate --seed {outcome.seed}{_AGAIN.get(kind, '')}", markup=False)
                return 1
    if kind == "hosts":
        pulls = ", ".join(f"{number} {name}" for name, number in sorted(totals.network.items()))
        console.print(f"Pulls between hosts: {pulls}.", markup=False)
    faults = ", ".join(f"{number} {kind}" for kind, number in sorted(totals.fired.items()))
    rebuilt = "sessions" if kind in {"real-time", "chains"} else "environments rebuilt"
    console.print(
        f"{totals.runs} seeds, {totals.epochs} epochs, {totals.starts} starts of the driver, {totals.recoveries} "
        f"{rebuilt}; faults: {faults or 'none'}; 0 violations in {time.monotonic() - start:.0f} s; digest "
        f"{totals.digest[:16]}",
        markup=False,
    )
    return 0

"""`./inv conformance`: the full product on Spark, a line per case as it ends, then the table."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.experiment.description import shares_store
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.files import RESULTS, JsonLines, read_lines, write_json
from harness.lab.bringup import KEEP_LOGS, Services, bring_up, open_session
from harness.lab.hosts.cluster import cluster as cluster_of
from harness.options import CUT_OFF, ending, parse_names
from harness.report.terminal import terminal, terminal_table
from harness.results.machine import describe_machine
from harness.results.place import find_folder, making, new_folder
from harness.setup.java import ensure_jars, use_java
from harness.suites.conformance.cases import OPERATORS, SCENARIOS, ConformanceCase, Tour, all_cases, pairs, tours
from harness.suites.conformance.judge import Row
from harness.suites.conformance.query import INPUT_PARTITIONS, SLOTS, TourPlace, run_tour
from impls import catalog
from impls.errors import UsageError
from impls.spark.realtime.settings import real_time_settings, real_time_threads

_ROWS, _SUITE, _DONE = "rows.jsonl", "suite.json", "done"
_HEAVY = ("broker", "redis", "runs", "cluster")
_WORKERS = 4  # of most cases: that many slots there are


def selected(
    mechanism: str = "", operator: str = "", scenario: str = "", *, quick: bool = False, mode: str = MICRO_BATCH
) -> list[ConformanceCase]:
    """Returns the cases that options name; raises UsageError for a name that is unknown.

    Names of each kind are separated by commas, all for none; `quick` leaves only a selection in which every pair of
    values occurs. In real-time mode mechanisms with a store that all workers share are left out.
    """
    known = [name for name in catalog.names() if mode != REAL_TIME or not shares_store(name)]
    mechanisms = parse_names(mechanism, known, "mechanism") or known
    operators = parse_names(operator, OPERATORS, "operator") or OPERATORS
    scenarios = parse_names(scenario, SCENARIOS, "scenario") or tuple(SCENARIOS)
    cases = [
        case
        for case in all_cases()
        if case.mechanism in mechanisms and case.operator in operators and case.scenario in scenarios
    ]
    return pairs(cases) if quick else cases


@contextmanager
def _brought_up(folder: Path, hosts: int, mode: str) -> Iterator[tuple[Services, Path | None]]:
    """Yields broker, session and Redis server; on a cluster of so many hosts also the folder of state on each."""
    session = partial(open_session, "conformance", _WORKERS, settings=KEEP_LOGS)
    if mode == REAL_TIME:
        threads = real_time_threads(INPUT_PARTITIONS, SLOTS)
        session = partial(open_session, "conformance", threads, settings=real_time_settings(KEEP_LOGS))
    with ExitStack() as stack:
        if not hosts:
            yield stack.enter_context(bring_up(folder, session=session, redis="none")), None
            return
        running = stack.enter_context(cluster_of(hosts, folder=folder / "cluster", cores=-(-_WORKERS // hosts)))
        on_cluster = partial(session, master=running.master)
        services = stack.enter_context(bring_up(folder, session=on_cluster, redis="none", host=running.driver))
        yield services, running.state_dir


def conformance(
    planned: Sequence[Tour], folder: Path, console: Console, *, hosts: int = 0, mode: str = MICRO_BATCH
) -> tuple[list[Row], bool]:
    """Runs the tours that are not in the folder yet and returns (all rows, whether it was cut off).

    `hosts` is the number of hosts of a cluster that they run on, 0 for local mode; `mode` is Spark's.
    """
    rows = [Row(**line) for line in read_lines(folder / _ROWS)]
    left = [tour for tour in planned if len(_rows_of(rows, tour)) < len(tour.scenarios)]
    rows = [row for tour in planned if tour not in left for row in _rows_of(rows, tour)]
    if len(left) < len(planned):
        console.print(f"{len(planned) - len(left)} of {len(planned)} queries were done before")
    begun = time.monotonic()
    try:
        with ExitStack() as stack, JsonLines(folder / _ROWS) as file:
            up: tuple[Services, Path | None] | None = None
            for number, tour in enumerate(left, 1):
                services, state = up = up or stack.enter_context(_brought_up(folder, hosts, mode))
                where = folder / "runs" / str(tour).replace("/", "-")
                shutil.rmtree(where, ignore_errors=True)
                name = f"{time.monotonic_ns()}-{where.name}"  # a broker that is gone on with has the topics of before
                place = TourPlace(
                    services.spark, services.broker.bootstrap, name, services.redis_url, state and state / name, mode
                )
                outcome = run_tour(tour, where, place)
                rows += outcome
                for row in outcome:
                    file.write(asdict(row))
                    console.print(_line(row), soft_wrap=True)
                if all(row.good for row in outcome):
                    shutil.rmtree(where, ignore_errors=True)  # what is heavy of a tour without findings
                rest = (time.monotonic() - begun) / number * (len(left) - number)
                console.print(f"{number}/{len(left)} queries, about {rest / 60:.0f} min left")
    except KeyboardInterrupt:
        return rows, True
    (folder / _DONE).touch()
    if all(row.good for row in rows):
        for heavy in _HEAVY:
            shutil.rmtree(folder / heavy, ignore_errors=True)
    return rows, False


def _rows_of(rows: Sequence[Row], tour: Tour) -> list[Row]:
    """Returns the rows of a tour, each case once, the newest."""
    mine = {row.scenario: row for row in rows if f"{row.mechanism}/{row.operator}/{row.keys}" == str(tour)}
    return [mine[scenario] for scenario in tour.scenarios if scenario in mine]


def _line(row: Row) -> str:
    what = f"{row.mechanism} {row.operator} {row.scenario}, {row.keys} keys: {row.verdict}"
    return what if row.good else f"{what}: {'; '.join(row.reasons)}"


def _table_of(rows: Sequence[Row], mode: str) -> Table:
    """Returns the table of cases."""
    words = ("mechanism", "operator", "scenario", "keys", "verdict")
    figures = ["epochs", "bound", "moved bytes", "must-move bytes", "replicated bytes"]
    if any(row.network_bytes for row in rows):
        figures.append("from other hosts")
    texts = []
    for row in rows:
        *cells, _reasons, network = astuple(row)
        cells = [*cells, network][: len(words) + len(figures)]
        texts.append([cell if isinstance(cell, str) else "-" if cell is None else f"{cell:,}" for cell in cells])
    return terminal_table((*words, *figures), texts, words)


def _folder(planned: Sequence[Tour], output: Path, *, hosts: int, force: bool, mode: str) -> Path:
    """Returns the newest unfinished folder of the same suite and commit, or makes one."""
    suite = {"tours": [[*str(tour).split("/"), *tour.scenarios] for tour in planned], "hosts": hosts}
    suite |= {"mode": mode}
    here = describe_machine(0)

    def same(data: dict[str, Any]) -> bool:
        like = (data["tours"], data.get("hosts", 0), data.get("mode", MICRO_BATCH)) == (suite["tours"], hosts, mode)
        return bool(like and data["environment"]["commit"] == here["commit"])

    begun = None if force else find_folder(output, _SUITE, same, finished=False)
    if begun is not None:
        return begun
    folder = new_folder(output, "conformance")
    with making(folder):
        write_json(folder / _SUITE, {**suite, "environment": here})
    return folder


@ending()
def run_conformance(
    *, mechanism: str = "", operator: str = "", scenario: str = "", quick: bool = False, output: str = "",
    force: bool = False, cluster: int | None = None, mode: str = MICRO_BATCH,
) -> int:  # fmt: skip
    """Runs what the options of `./inv conformance` name and returns the exit code; the last line is the folder.

    It is 0 when every case is valid, 1 otherwise, 2 for bad input and 130 when it was cut off; the same options go on
    with what was cut off.
    """
    console = terminal()
    planned = tours(selected(mechanism, operator, scenario, quick=quick, mode=mode))
    cases = sum(len(tour.scenarios) for tour in planned)
    if mode == REAL_TIME and cluster:
        raise UsageError("Real-time mode runs in one process of Spark: leave out --cluster.")
    use_java()
    ensure_jars()
    folder = _folder(planned, Path(output or RESULTS), hosts=cluster or 0, force=force, mode=mode)
    console.print(f"{cases} cases in {len(planned)} queries{f' on {cluster} hosts' if cluster else ''}")
    rows, cut_off = conformance(planned, folder, console, hosts=cluster or 0, mode=mode)
    console.print(_table_of(rows, mode))
    good = sum(row.good for row in rows)
    console.print(f"{good} of {cases} cases are valid")
    sys.stdout.write(f"{folder}\n")
    return CUT_OFF if cut_off else int(good < cases)

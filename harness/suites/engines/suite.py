"""What `./inv compare-engines` runs and prints: an experiment for each number of keys, a row for each rescale."""

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from generators.clock import ARRIVALS_MS
from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.experiment.parameters import PARAMETERS
from harness.files import RESULTS, read_json
from harness.measure.memory import BESIDE
from harness.options import ending, parse_list, parse_number
from harness.options.declared import read_given
from harness.oracle.nexmark.queries import DEFINITIONS
from harness.report.terminal import terminal, terminal_table
from harness.results.runfiles import RunFiles
from harness.suites.bench import Suite, measure_in_turn
from harness.suites.engines.floor import FLOOR
from harness.suites.engines.page import COLUMNS, NAMES, RESULT_FILE, notes, texts, write_reference, write_result
from harness.suites.options import ENGINES_QUICK
from impls import catalog
from impls.errors import UsageError
from plots.data import StoredRun, load
from plots.metrics import marks

_ENGINE_ROLES = ("jvm", "worker", "executor")
_MIB = 1 << 20


def longest_gap_s(done_us: NDArray[np.int64], begin_us: int, end_us: int) -> float | None:
    """Returns the longest time without a result from the last one before `begin_us` to the first behind `end_us`.

    Where there is no result before, or none behind, the time itself is the edge: the gap is as long at least.

    >>> longest_gap_s(np.array([0, 9, 10, 40, 50]) * 1_000_000, 12_000_000, 20_000_000)
    30.0
    """
    done = np.unique(done_us)
    if not len(done):
        return None
    low, high = np.searchsorted(done, begin_us, "right") - 1, np.searchsorted(done, end_us)
    inside = done[max(low, 0) : high + 1]
    edges = [*([] if low >= 0 else [begin_us]), *inside, *([] if high < len(done) else [end_us])]
    return float(np.diff(edges).max(initial=0)) / 1e6


def cpu_s(samples: Sequence[Mapping[str, Any]]) -> float:
    """Returns the processor time in s of the engine's processes by samples of memory.jsonl.

    These are all of the run but broker and generator. A process that ends takes what it has used along: then the sum
    falls, and what it falls by is no use.
    """
    sums = [sample["cpu"] for sample in samples if "cpu" in sample]

    def used(name: str) -> int:
        values = [(one.get(name), after.get(name)) for one, after in pairwise(sums)]
        return sum(max(after - before, 0) for before, after in values if before is not None and after is not None)

    return (used("own") - sum(used(f"own_{role}") for role in BESIDE)) / 1e6


def row_of(load: Mapping[str, Any], entry: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each rescale of a run: names, times in ms and s, None in place of what is not known.

    Args:
        load: number of keys, and the query, "" for the count; the commit at which it ran.
        entry: of the run, in result.json.
        folder: of the run.
    """
    files = RunFiles(folder)
    steady, memory = entry["latency_ms"]["steady"], entry["memory_bytes"]
    records = entry["generator"]["records"]
    about = {
        **load,
        "engine": entry["mechanism"],
        "round": entry["round"],
        "verdict": ", ".join([entry["verdict"], *marks(entry)]),
        "p50_ms": steady["p50"], "p99_ms": steady["p99"], "p999_ms": steady["p999"],
        "lag_ms": entry["generator"]["lag_ms"].get("p50"), "cpu_idle": entry.get("cpu_idle"),
        "cpu_s_per_million": cpu_s(files.memory) / records * 1e6 if records else None,
        "memory_mib": sum(memory.get(role, 0) for role in _ENGINE_ROLES) / _MIB,
        "lost": entry["lost"], "doubled": entry["doubled"], "repeats": _repeats(folder),
        "reasons": entry["reasons"],
    }  # fmt: skip
    return [{**about, **_rescale(found, files)} for found in entry["migrations"]] or [{**about, **_NO_RESCALE}]


def _timeline_of(load: Mapping[str, Any], run: StoredRun) -> dict[str, Any]:
    """Returns the highest latency in ms of each 250 ms of a run, and when its rescales were under way, in s."""
    found = run.timeline
    return {
        **load, "engine": run.mechanism, "round": run.round,
        "at_s": found["at_s"].round(2).tolist(), "max_ms": found["max"].round(1).tolist(),
        "rescales": [[round(begin, 2), round(end, 2)] for begin, end in run.migrations()],
    }  # fmt: skip


_NO_RESCALE = dict.fromkeys(("rescale", "peak_ms", "slow_s", "gap_s", "held_s", "drain_s"))


def _repeats(folder: Path) -> int | None:
    found = read_json(folder / "oracle.json").get("repeats")
    return None if found is None else int(found)


def _rescale(migration: Mapping[str, Any], files: RunFiles) -> dict[str, Any]:
    begin_us = files.start_us + round(migration["begin_s"] * 1e6)
    end_us = begin_us if migration["end_s"] is None else files.start_us + round(migration["end_s"] * 1e6)
    return {
        "rescale": migration["label"],
        "peak_ms": migration["peak_ms"],
        "slow_s": migration["slow_s"],
        "gap_s": longest_gap_s(files.cells.done_us, begin_us, end_us),
        "held_s": None if migration["end_s"] is None else migration["end_s"] - migration["begin_s"],
        "drain_s": _drain_s(migration, files),
    }


def _drain_s(migration: Mapping[str, Any], files: RunFiles) -> float | None:
    """Returns how long the engine worked off input with the old workers after the command; None if it says nothing."""
    found = [event for event in files.events if event["kind"] == "epoch_finished" and event["id"] == migration["id"]]
    return sum(float(event["seconds"]) for event in found) if found else None


_NATIVE = "native-real-time"  # whose processes are one, which a fault would end
_MECHANISMS = (
    "megaphone-batched", _NATIVE, "flink-adaptive", "flink-savepoint",
    "kafka-streams-classic", "kafka-streams-instance", FLOOR,
)  # fmt: skip
_KEYS = "1M,4M,10M"
_GIVEN = ("option", "rate", "duration", "bins", "rounds", "seed", "batch", "fault")


def suite_from(options: Mapping[str, Any]) -> Suite:
    """Returns what the options ask for; raises UsageError for bad ones."""
    quick = ENGINES_QUICK if options.get("quick") else {}
    shared: dict[str, Any] = {"duration_s": 60.0, "lead_in_s": 5.0, "rate": 10_000, "rounds": 1, **quick}
    shared |= read_given(PARAMETERS, {name: options.get(name) or None for name in _GIVEN})
    shared |= {"workers": options.get("workers") or "2:4"}
    fault, named = bool(options.get("fault")), options.get("mechanism")
    loads: list[dict[str, Any]] = [
        {"workload": "nexmark", "query": query, "latency_of": "results", "mechanism": named or _usual(query, fault)}
        for query in _queries(str(options.get("query") or ""))
    ] or [
        {"workload": "hash", "keys": parse_number(text, "The number of keys"), "mechanism": named or _usual("", fault)}
        for text in parse_list(str(options.get("keys") or quick.get("keys", _KEYS)))
    ]
    beats = [
        read_given(PARAMETERS, {"arrivals": text}) for text in parse_list(str(options.get("arrivals") or ARRIVALS_MS))
    ]
    return Suite("engines", tuple(_experiment({**shared, **load, **beat}) for load in loads for beat in beats))


def _queries(named: str) -> tuple[str, ...]:
    """Returns the queries that are named; raises UsageError for one whose results nobody can tell the latency of."""
    queries, known = parse_list(named), [query for query, of in DEFINITIONS.items() if of.completed]
    if others := [query for query in queries if query not in known]:
        raise UsageError(f"{others[0]} has no event that completes a result: compare {' or '.join(known)}.")
    return queries


def _usual(query: str, fault: bool) -> str:
    """Returns the mechanisms to compare, by commas: those that run a query, or count, and can have a fault."""
    engines = set(catalog.engines())
    able = [name for name in _MECHANISMS if not query or name not in engines or query in catalog.queries_of(name)]
    alone = {_NATIVE, FLOOR} if fault or query else set()
    return ",".join(name for name in able if name not in alone)


def _experiment(values: Mapping[str, Any]) -> Experiment:
    return make_experiment(**{**values, "mode": "real-time", "migration": "there-and-back", "name": "engines"})


def measured(suite: Suite, output: Path, *, force: bool = False) -> tuple[Path, int]:
    """Runs what is missing of a suite and writes its table, see `harness.suites.bench.measure_in_turn`."""
    rows, lines = list[dict[str, Any]](), list[dict[str, Any]]()

    def take(folder: Path, number: int, path: Path) -> None:
        asked = suite.experiments[number]
        what = {"keys": asked.keys, "query": asked.query, "arrivals_ms": asked.arrivals_ms}
        commit = read_json(path / "experiment.json")["environment"]["commit"]
        for entry in read_json(path / "result.json")["runs"]:
            rows.extend(row_of({**what, "commit": commit}, entry, path / entry["folder"]))
        lines.extend(_timeline_of(what, run) for run in load(path).comparable())
        write_result(folder, rows, lines)

    return measure_in_turn(suite, suite.experiments, output, take, force=force)


@ending("cut off; the same options again go on")
def run_compare_engines(options: Mapping[str, Any]) -> int:
    """Runs the comparison, prints its table and the result's path, and returns the exit code as `./inv bench`."""
    suite, output = suite_from(options), Path(options.get("output") or RESULTS)
    reference = bool(options.get("reference"))
    if reference and options.get("quick"):
        raise UsageError("A reference needs the comparison in full: leave out --quick.")
    folder, code = measured(suite, output, force=bool(options.get("force")))
    if reference and code == 0:
        write_reference(folder)
    console = terminal()
    result = read_json(folder / RESULT_FILE)
    console.print(terminal_table(COLUMNS, map(texts, result["rows"]), NAMES[1:]))
    for sentence in [*result["conclusions"], *notes(result["rows"])]:
        console.print(sentence)
    sys.stdout.write(f"{folder}\n")
    return code

"""`./inv profile`: flame graphs of a query under load, of its driver and of the worker that computes most.

py-spy samples both from outside while they run: no code of the query is another one for it. perf, which does so too,
knows no Python frames before Python 3.12. A thread that waits is in the graph with what it waits in.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.experiment.parameters import PARAMETERS
from harness.files import RESULTS
from harness.lab.processes import python_workers
from harness.options import ending
from harness.options.declared import read_given
from harness.run.runs import check_machine
from harness.setup.java import ensure_jars
from harness.suites.bench import bench
from harness.suites.options import PROFILE
from impls.errors import UsageError

_LOOK_S = 0.2
_WARM_S = 4.0  # of the load
_RATE = 50  # samples a second; at 200, py-spy takes a third of its CPU time from the query
_RUN = "harness.run.process"


@ending()
def run_profile(options: Mapping[str, Any]) -> int:
    """Runs one query, samples it, prints the paths of its flame graphs, and returns the exit code of `./inv bench`."""
    experiment, seconds = read_options(options)
    output = Path(options.get("output") or RESULTS)
    check_machine(experiment, output)
    ensure_jars()
    sampler = Sampler(seconds)
    sampler.start()
    folder, code = bench(experiment, output, force=True)
    sampler.end()
    for name, graph in sampler.graphs.items():
        target = folder / f"{name}.svg"
        target.write_bytes(graph)
        sys.stdout.write(f"{target}\n")
    if sampler.failure:
        raise UsageError(sampler.failure)
    return code


def read_options(options: Mapping[str, Any]) -> tuple[Experiment, float]:
    """Returns what is run, of one run, and for how many seconds it is sampled; raises UsageError for bad options."""
    values = {option.name: option.default for option in PROFILE} | {k: v for k, v in options.items() if v is not None}
    seconds = read_given(PROFILE, values)["seconds"]
    of_run = {option.name for option in PARAMETERS} & values.keys()
    shared = read_given(PARAMETERS, {name: values[name] for name in of_run if values[name]})
    return make_experiment(**{"duration_s": _WARM_S + seconds + 2, **shared}), seconds


class Sampler(threading.Thread):
    """start() before the run, end() behind it; then `graphs` has an SVG for `driver` and `worker`.

    Attributes:
        graphs: what was drawn.
        failure: a sentence, "" for none.
    """

    def __init__(self, seconds: float):
        super().__init__(name="samples", daemon=True)
        self.graphs: dict[str, bytes] = {}
        self.failure = "The run had no load that lasted long enough to be sampled."
        self._seconds, self._over = seconds, threading.Event()

    def end(self) -> None:
        """Waits for what is being drawn."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Waits for the load of a run below this process, and samples it."""
        while (driver := _driver()) is None:
            if self._over.wait(_LOOK_S):
                return
        time.sleep(_WARM_S)
        pids = {"driver": driver.pid, "worker": max(python_workers(driver.pid), key=_cpu_s, default=driver.pid)}
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: Path(folder) / f"{name}.svg" for name in pids}
            recording = {name: self._record(pid, paths[name]) for name, pid in pids.items()}
            for name, process in recording.items():
                _, said = process.communicate()
                if process.returncode:
                    self.failure = f"py-spy could not sample the {name}: {said.decode().strip().splitlines()[-1]}"
                    return
                self.graphs[name] = paths[name].read_bytes()
        self.failure = ""

    def _record(self, pid: int, path: Path) -> subprocess.Popen[bytes]:
        command = [
            str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid), "--output", str(path),
            "--duration", str(round(self._seconds)), "--rate", str(_RATE), "--format", "flamegraph",
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _driver() -> psutil.Process | None:
    """Returns the process of a run whose load has begun, None while there is none."""
    for process in psutil.Process().children():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if _RUN in line and (Path(line[-1]) / "load.json").exists():
            return process
    return None


def _cpu_s(pid: int) -> float:
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:2]))
    except psutil.Error:
        return 0.0

"""The generator as a child process of a run, and the schedule it follows."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from generators.clock import ARRIVALS_MS, now_us
from generators.rates import Schedule, csv_path, make_schedule
from harness.experiment.description import Experiment
from harness.files import ROOT, read_json, write_json
from impls.closing import Closing
from impls.errors import StateError, UsageError
from impls.operators.nexmark import QUERIES

Waits = Callable[[], str]

_RATES = "rates.csv"
_AHEAD_S = 0.25  # before its end the load is told to go on, so that no record of the next second is late
_LOOK_S = 0.05
_PRELOAD_DEADLINE_S = 600.0
_HEAD_START_US = 1_500_000  # the generator's own start-up
_START_IN_US = 250_000  # of a generator that is ready
_READY_DEADLINE_S = 60.0


def schedule(
    folder: Path, experiment: Experiment, topic: str, preloaded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns load.json, made now for a new run and read for a resumed one: the schedule never changes.

    Behind a preload its `start_us` is 0 until the generator is ready: it looks first what the topic holds, which takes
    1 to 2 s.

    Args:
        folder: the run's folder.
        experiment: its experiment.
        topic: the input topic.
        preloaded: of NEXMark what `preload` returned, None for other workloads.
    """
    path = folder / "load.json"
    if path.exists():
        data: dict[str, Any] = json.loads(path.read_text())
        return data
    folder.mkdir(parents=True, exist_ok=True)
    end_s = experiment.lead_in_s + experiment.duration_s
    data = {
        "start_us": now_us() + _HEAD_START_US if preloaded is None else 0,
        "rate": experiment.rate,
        "rate_shape": _own_shape(folder, experiment.rate_shape),
        **_until(experiment.schedule(), end_s),
        "planned_s": end_s,
        "most_s": experiment.longest_s,
        "lead_in_s": experiment.lead_in_s,
        "arrivals_ms": experiment.arrivals_ms,
        "seed": experiment.seed,
        "keys": experiment.keys,
        "distribution": experiment.distribution,
        "exponent": experiment.exponent,
        "partitions": experiment.input_partitions,
        "topic": topic,
        **({} if preloaded is None else {"nexmark": preloaded}),
    }
    write_json(path, data)
    return data


def _until(planned: Schedule, end_s: float) -> dict[str, Any]:
    """Returns what load.json says of a load that ends `end_s` seconds after its begin."""
    return {
        "end_s": end_s,
        "records": planned.records_until(int(end_s * 1e6) - 1),
        "due_by_second": [planned.records_until(second * 1_000_000 - 1) for second in range(1, int(end_s) + 1)],
    }


def _own_shape(folder: Path, shape: str) -> str:
    """Returns the shape with a copy of its file in the folder, so that the run keeps it and is resumed on it."""
    path = csv_path(shape)
    if path is None:
        return shape
    shutil.copyfile(path, folder / _RATES)
    return f"{shape.partition(':')[0]}:{_RATES}"


def _shape(folder: Path, load: Mapping[str, Any]) -> str:
    """Returns the shape as the producer needs it: with the place of its file."""
    shape = str(load.get("rate_shape", "constant"))
    return shape if csv_path(shape) is None else f"{shape.partition(':')[0]}:{(folder / _RATES).absolute()}"


def _command(folder: Path, bootstrap: str, load: Mapping[str, Any]) -> list[Any]:
    common = [
        sys.executable, "-m", "generators.producer", "--bootstrap-servers", bootstrap, "--topic", load["topic"],
        "--partitions", load["partitions"], "--rate", load["rate"], "--rate-shape", _shape(folder, load),
        "--lead-in", load.get("lead_in_s", 0), "--records", load["records"], "--seed", load["seed"],
        "--arrivals", load.get("arrivals_ms", ARRIVALS_MS),
    ]  # fmt: skip
    if (nexmark := load.get("nexmark")) is None:
        return [*common, "--keys", load["keys"], "--distribution", load["distribution"], "--exponent", load["exponent"]]
    return [
        *common, "--workload", "nexmark", "--profile", nexmark["profile"], "--out-of-order", nexmark["out_of_order"],
        "--event-start-us", nexmark["event_start_us"], *(["--bid-channels"] if nexmark.get("channels") else []),
    ]  # fmt: skip


def preload(folder: Path, bootstrap: str, experiment: Experiment, topic: str) -> dict[str, Any]:
    """Sends the NEXMark events from before the start of the clock and returns what the load needs to know of them.

    That is profile, out_of_order, the event time of the start in µs, and the number of events sent. Raises UsageError
    when they cannot be sent.
    """
    nexmark: dict[str, Any] = {
        "profile": experiment.profile, "out_of_order": experiment.out_of_order, "event_start_us": now_us(),
        "channels": QUERIES[experiment.query].reads_channels(),
    }  # fmt: skip
    load = {
        "topic": topic, "partitions": experiment.input_partitions, "rate": experiment.rate, "records": 0,
        "seed": experiment.seed, "nexmark": nexmark,
    }  # fmt: skip
    out = folder / "preload.json"
    command = [*_command(folder, bootstrap, load), "--preload-only", "--out", out]
    done = subprocess.run(
        [str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        cwd=ROOT, timeout=_PRELOAD_DEADLINE_S,
    )  # fmt: skip
    if done.returncode:
        raise UsageError(f"The events from before the start cannot be sent: {done.stderr.strip() or done.returncode}")
    return {**nexmark, "preload": int(read_json(out)["preload"])}


def _let_go_first(pid: int) -> None:
    """Lets a process run before others where that is allowed, as if it had a machine of its own.

    By round-robin scheduling: under nice -10 the start of a JVM on two cores delayed the generator by up to 183 ms.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


class LoadGenerator(Closing):
    """The producer process; `with LoadGenerator(...)` ends it in any case, and it ends itself when this process dies.

    With `waits_for` the load is extendable: while that says what it waits for, the load goes on past its planned end,
    second by second on the same schedule, up to load.json's `most_s`. The limit is the experiment's `longest_s`.

    Where the load has no `start_us` yet, it gets one when the generator is ready.
    """

    def __init__(
        self, folder: Path, bootstrap: str, load: dict[str, Any], *, resume: bool, waits_for: Waits | None = None
    ):
        self._folder, self._load, self._waits_for = folder, load, waits_for
        self._log = (folder / "generator.log").open("ab")
        known = bool(load["start_us"])
        command = [
            *_command(folder, bootstrap, load), *(["--start-us", load["start_us"]] if known else ["--await-start"]),
            "--out", folder / "generator.json",
            "--watch-stdin" if waits_for is None else "--extendable",
            *(["--resume"] if resume or "nexmark" in load else []),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE,
            stdout=self._log if known else subprocess.PIPE, stderr=self._log,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        _let_go_first(self._process.pid)
        self._closing = threading.Event()
        if not known:
            self._start()
        if waits_for is not None:
            planned = make_schedule(_shape(folder, load), load["rate"], load["lead_in_s"])
            self._steer = threading.Thread(target=self._keep_on, args=(waits_for, planned), daemon=True)
            self._steer.start()

    def _start(self) -> None:
        """Waits until the generator is ready, writes down when it starts, and tells it."""
        try:
            self._await_ready()
            self._load["start_us"] = now_us() + _START_IN_US
            write_json(self._folder / "load.json", self._load)
            self._tell(f"start {self._load['start_us']}")
        except BaseException:
            self.close()
            raise

    def _await_ready(self) -> None:
        out = self._process.stdout
        assert out is not None, "it is a pipe where the start is awaited"
        with out:
            said = out.readline() if select.select([out], [], [], _READY_DEADLINE_S)[0] else b"nothing"
        if not said:
            self._process.wait(_READY_DEADLINE_S)
            self.finished()
        if said != b"ready\n":
            raise StateError(f"The generator was not ready in {_READY_DEADLINE_S:.0f} s.")

    def _keep_on(self, waits_for: Waits, planned: Schedule) -> None:
        """Tells the generator at each end whether to go on; on a thread, as a restart of the query stops all others."""
        load = self._load
        while not self._closing.wait(_LOOK_S):
            now_s = (now_us() - load["start_us"]) / 1e6
            if now_s < load["end_s"] - _AHEAD_S:
                continue
            why = waits_for()
            if why and load["end_s"] + 1 <= load["most_s"]:
                load.update(_until(planned, load["end_s"] + 1))
                write_json(self._folder / "load.json", load)
                self._tell(f"records {load['records']}")
            elif now_s >= load["end_s"]:
                if why:
                    load["unmet"] = why
                    write_json(self._folder / "load.json", load)
                self._tell("end")
                return

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has failed, which `finished` says; or is closed
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Process id of the generator."""
        return self._process.pid

    def finished(self) -> bool:
        """Returns whether all records are sent; raises UsageError when the generator failed."""
        code = self._process.poll()
        if code:
            tail = (self._folder / "generator.log").read_text().strip().splitlines()[-1:]
            raise UsageError(f"The generator failed: {tail[0] if tail else f'exit code {code}'}.")
        return code == 0

    def close(self) -> None:
        """Ends the generator: what is queued is sent, what is not yet due is not."""
        self._closing.set()
        try:
            self._process.terminate()
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
            raise StateError("The generator did not end in 15 s and was killed.") from None
        finally:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # of a word that it did not live to read
                self._process.stdin.close()
            self._log.close()

"""Finds the evidence of a claim among stored results, or makes it."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.make import experiment_from
from harness.files import ROOT, read_json, write_json
from harness.options import CUT_OFF
from harness.results.machine import describe_machine
from harness.results.place import find_earlier, find_folder, new_folder
from harness.run.runs import AGAIN, check_machine
from harness.setup.jars import ensure_jars
from harness.suites.bench import bench
from harness.suites.claims.claims import ClaimSource
from harness.suites.claims.evidence import EVIDENCE_FILE, Evidence
from harness.suites.nexmark import suite as nexmark
from harness.suites.perf import suite as perf
from harness.suites.sweep import Grid, grid_from, sweep

_FOLDER = "{folder}"  # in a command's arguments

Asked = Experiment | Grid | nexmark.NexmarkSuite | perf.PerfSuite


def described(source: ClaimSource) -> Asked:
    """Returns what an experiment of claims.toml asks for that is a task's; raises UsageError for what cannot be."""
    if source.kind == "nexmark":
        return nexmark.suite_from(source.options)
    if source.kind == "perf":
        return perf.suite_from(source.options)
    options = {**source.options, "name": f"claim-{source.name}"}
    return experiment_from(options) if source.kind == "bench" else grid_from(options)


def find(source: ClaimSource, folder: Path) -> Evidence | None:
    """Returns the newest stored evidence below a folder, None if there is none.

    A result counts if all parameters that it names are those asked for; an older one may not know some. It may be of
    another commit, which is printed with the verdict.
    """
    if source.kind == "placement":
        return Evidence()
    if source.kind == "command":
        wanted = _command(source, Path(_FOLDER))
        for path in sorted(folder.glob(f"*/{EVIDENCE_FILE}"), reverse=True):
            said = read_json(path)
            if said.get("command") == wanted:
                return Evidence(path.parent, said)
        return None
    asked = json.loads(json.dumps(described(source).to_json()))

    def matches(stored: Mapping[str, Any]) -> bool:
        return "name" in stored and all(stored[name] == value for name, value in asked.items() if name in stored)

    found = find_folder(folder, "experiment.json", matches, finished=True)
    return None if found is None else Evidence(found)


def make(source: ClaimSource, output: Path, *, force: bool = False) -> Evidence:
    """Runs what shows a claim and returns its evidence; continues a run that was cut off.

    Raises:
        UsageError: the machine lacks something.
        KeyboardInterrupt: cut off.
    """
    if source.kind == "placement":
        return Evidence()
    if source.kind == "command":
        return _run_command(source, output)
    asked = described(source)
    ensure_jars()
    folder, code = _carried_out(asked, output, force=force)
    if code == CUT_OFF:
        raise KeyboardInterrupt
    return Evidence(folder)


def _carried_out(asked: Asked, output: Path, *, force: bool) -> tuple[Path, int]:
    """Returns the result folder and the exit code."""
    if isinstance(asked, nexmark.NexmarkSuite):
        return nexmark.measured(asked, output, force=force, again=AGAIN)
    if isinstance(asked, perf.PerfSuite):
        return perf.measured(asked, output, force=force), 0
    if isinstance(asked, Experiment):
        check_machine(asked, output)
        resume = not force and find_earlier(asked, output, finished=False) is not None
        return bench(asked, output, force=force, resume=resume, again=AGAIN)
    largest = max((run.experiment for run, _ in asked.runs()), key=lambda experiment: experiment.keys)
    check_machine(largest, output)
    return sweep(asked, output, force=force, again=AGAIN)


def _command(source: ClaimSource, folder: Path) -> list[str]:
    return ["-m", source.module, *(argument.replace(_FOLDER, str(folder)) for argument in source.arguments)]


def _run_command(source: ClaimSource, output: Path) -> Evidence:
    """Runs a module and keeps what it says, line by line, with its exit code and the machine it ran on."""
    folder = new_folder(output, f"claim-{source.name}")
    start, lines = time.monotonic(), []
    command = [sys.executable, *_command(source, folder)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                sys.stderr.write(line)
    except KeyboardInterrupt:  # which the module has got too, and has ended with
        shutil.rmtree(folder, ignore_errors=True)
        raise
    said = {
        "command": _command(source, Path(_FOLDER)),
        "exit_code": process.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "lines": lines,
        "environment": describe_machine(0),
    }
    write_json(folder / EVIDENCE_FILE, said)
    return Evidence(folder, said)

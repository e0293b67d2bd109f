"""A revision as a work tree of its own, runs of `./inv bench` in it, and their measures for a comparison."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.files import ROOT, read_json, read_lines
from impls.errors import StateError, UsageError
from plots.metrics import at, by_name

_GIT_DEADLINE_S = 60.0
_END_DEADLINE_S = 60.0
_PATHS = {
    "epoch_p50_ms": ("epoch_ms", "steady", "p50"),
    "epoch_p99_ms": ("epoch_ms", "steady", "p99"),
    "steady_p50_ms": ("latency_ms", "steady", "p50"),
    "steady_p99_ms": ("latency_ms", "steady", "p99"),
    "migrating_p99_ms": ("latency_ms", "migrating", "p99"),
}


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=_GIT_DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"git cannot be run: {error}.") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"git {words[0]} failed: {said[-1]}.")
    return done.stdout.strip()


def revision(name: str) -> str:
    """Returns the commit that a name of a revision stands for; raises UsageError for one that there is not."""
    try:
        return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except UsageError:
        raise UsageError(f"There is no revision {name!r} in this repository.") from None


class Tree:
    """A work tree and the environment it runs in: the same as here where both lock the same dependencies."""

    def __init__(self, path: Path, commit: str):
        self.path, self.commit = path.resolve(), commit  # runs have it as their working folder
        same = (path / "requirements.lock").read_bytes() == (ROOT / "requirements.lock").read_bytes()
        self._venv = os.environ.get("RESCALE_VENV", str(ROOT / ".venv")) if same else str(path / ".venv")

    def bench(self, output: Path, options: list[str]) -> Path:
        """Runs `./inv bench` with the output folder and options given, and returns the result's folder.

        Raises StateError when it fails; its log is bench.log in the output folder.
        """
        output.mkdir(parents=True, exist_ok=True)
        command = [str(self.path / "inv"), "bench", "--output", str(output.resolve()), "--force", *options]
        with (output / "bench.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "RESCALE_VENV": self._venv},
            )  # fmt: skip
            try:
                code = process.wait()
            except BaseException:
                _end(process)
                raise
        results = sorted(output.glob("*/result.json"))
        if code or not results:
            raise StateError(
                f"./inv bench of {self.commit[:12]} ended with exit code {code}; see {output / 'bench.log'}."
            )
        return results[-1].parent


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait(_END_DEADLINE_S)


@contextmanager
def work_tree(commit: str, folder: Path) -> Iterator[Tree]:
    """Checks a commit out into a folder, which is gone afterwards."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # left by one that was killed
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", "--force", str(folder), commit)
    try:
        yield Tree(folder, commit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _git("worktree", "prune")


def was_busy(folder: Path) -> bool:
    """Returns whether the machine was busy during a run of a result; a revision that does not tell has none."""
    return any(entry.get("machine") == "busy" for entry in read_json(folder / "result.json").get("runs", []))


def measures_of(folder: Path) -> dict[str, dict[str, float]]:
    """Returns the measures of each mechanism of a result of `./inv bench` with one round.

    Raises:
        StateError: a run is not valid; then nothing is compared.
    """
    out = {}
    for entry in read_json(folder / "result.json").get("runs", []):
        if entry["verdict"] != "valid":
            raise StateError(f"A run in {folder} is {entry['verdict']}: {'; '.join(entry['reasons'])}")
        times = {name: float(value) for name, path in _PATHS.items() if (value := at(entry, *path))}
        plans = read_lines(folder / entry["folder"] / "plan.jsonl")
        moved = {name: by_name(name).value(entry) for name in ("moved_bins", "moved_bytes")}
        counts = {
            **({} if entry["generator"].get("extended_s") else {"records": float(entry["generator"]["records"])}),
            **{name: float(value) for name, value in moved.items() if value is not None},
            "pulls": float(sum(len(plan["pulls"]) for plan in plans)),
        }
        out[entry["mechanism"]] = {**times, **counts}
    return out

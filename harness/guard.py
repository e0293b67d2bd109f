"""Child processes that never outlive their parent, also when it is killed with -9.

Between parent and child stands a guard, a tiny process whose standard input is a pipe that only the parent holds. When
the pipe ends, however the parent went, the guard ends the child's process group: SIGTERM, then SIGKILL after a grace.
The kernel in turn ends the child should the guard itself be killed (on Linux).
"""

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_GRACE_S = 5.0
_TELLING = ("ERROR", "FATAL", "Exception")  # in a line of a log that tells why its program ended
_MARGIN_S = 5.0  # for the guard itself, behind its child's grace
_ORPHAN_CHECK_S = 1.0  # a forked copy of the parent may hold the pipe open; the parent's id cannot lie
_PR_SET_PDEATHSIG = 1


class GuardedProcess:
    """A child process behind its guard; `with` ends it."""

    def __init__(self, guard: subprocess.Popen[bytes], pid: int, grace_s: float):
        self._guard = guard
        self._grace_s = grace_s
        self.pid = pid

    def poll(self) -> int | None:
        """Returns the child's exit code (128 + n after signal n), None while it runs."""
        return self._guard.poll()

    def wait(self, deadline_s: float) -> int:
        """Returns the exit code; raises subprocess.TimeoutExpired when the child still runs after the deadline."""
        return self._guard.wait(deadline_s)

    def stop(self) -> int:
        """Ends the child, gracefully if it can within its grace, and returns its exit code."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        try:
            return self._guard.wait(self._grace_s + _MARGIN_S)
        except subprocess.TimeoutExpired:
            _kill_group(self.pid, signal.SIGKILL)
            self._guard.kill()
            return self._guard.wait(_MARGIN_S)

    def __enter__(self) -> "GuardedProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class GuardedProgram:
    """A program that says what happens in a log in its folder, and runs behind a guard once it was started.

    Args:
        folder: of its log and what else it keeps.
        log: the log's name there.
    """

    def __init__(self, folder: Path, log: str):
        self._folder = folder
        self._process: GuardedProcess | None = None
        self.log = folder / log

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ends the program, gracefully if it can within its grace; its folder stays."""
        if self._process is not None:
            self._process.stop()
        self._process = None

    def last_words(self, begin: int = 0) -> str:
        """Returns the last line of its log from a byte on that tells of an error, or else the last one."""
        said = self.log.read_bytes()[begin:].decode(errors="replace") if self.log.exists() else ""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        telling = [line for line in lines if any(word in line for word in _TELLING)]
        return (telling or lines or ["it said nothing"])[-1].rstrip(".")


def spawn(
    command: Sequence[str | Path],
    *,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    grace_s: float = _GRACE_S,
) -> GuardedProcess:
    """Starts a command behind a guard, in a session of its own, and returns when it runs.

    Args:
        command: program and arguments; its standard input is empty.
        stdout: as in subprocess.Popen.
        stderr: as in subprocess.Popen.
        env: the child's environment, this process's own by default.
        cwd: the folder that it works in, this process's own by default.
        grace_s: time between SIGTERM and SIGKILL.

    Raises:
        OSError: the command cannot be executed.
    """
    told, tell = os.pipe()
    options = ["--parent", str(os.getpid()), "--grace", str(grace_s), "--tell", str(tell)]
    with open(told, "rb") as answer:  # noqa: PTH123 - a descriptor, not a path
        try:
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, *options, "--", *map(str, command)],
                stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=env, cwd=cwd, pass_fds=[tell],
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(tell)
        words = answer.read().decode()
    if not words.isdecimal():
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(_MARGIN_S)
        raise OSError(f"{command[0]} cannot be started: {words or 'its guard failed'}")
    return GuardedProcess(guard, int(words), grace_s)


def main(arguments: Sequence[str]) -> int:
    """Guards one command until it ends or the parent is gone, and returns its exit code."""
    parser = argparse.ArgumentParser(prog="guard", description="Run a command that ends with its parent.")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process id to watch")
    parser.add_argument("--grace", type=float, default=_GRACE_S, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--tell", type=int, help="file descriptor that gets the child's process id")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    wake = _prepare_signals()
    try:
        child = _start(options.command)
    except OSError as error:
        _tell(options.tell, error.strerror or str(error))
        return 127
    _tell(options.tell, str(child))
    _watch(child, wake, options.parent)
    return _end(child, wake, options.grace)


def _prepare_signals() -> int:
    """Ignores what a terminal sends to all, and returns a descriptor that becomes readable at any other signal."""
    wake, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return wake


def _start(command: Sequence[str]) -> int:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - the guard has one thread
    )
    child.returncode = 0  # reaped by _end, not by Popen
    return child.pid


def _die_with_guard() -> None:
    for ignored in (signal.SIGINT, signal.SIGHUP):  # what is ignored would stay so in the child
        signal.signal(ignored, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell(descriptor: int | None, words: str) -> None:
    if descriptor is not None:
        os.write(descriptor, words.encode())
        os.close(descriptor)


def _watch(child: int, wake: int, parent: int) -> None:
    """Returns when the child has ended, the parent is gone, or a SIGTERM has come."""
    while not _ended(child) and os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno(), wake], [], [], _ORPHAN_CHECK_S)
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 4096):
            return
        if wake in readable and signal.SIGTERM in os.read(wake, 64):
            return


def _ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: int, wake: int, grace_s: float) -> int:
    """Ends the child's process group; the child is reaped last, so that the group's id stays its own."""
    deadline = time.monotonic() + grace_s
    if not _ended(child):
        _kill_group(child, signal.SIGTERM)
    while not _ended(child) and (left := deadline - time.monotonic()) > 0:
        if select.select([wake], [], [], left)[0]:
            os.read(wake, 64)
    _kill_group(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: a group of zombies is "not permitted"
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

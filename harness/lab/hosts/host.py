"""The first process of an isolated host: `host.py FOLDER NUMBER DISK COMMAND...` in namespaces of its own.

It says `ready`, waits for `go` while its network is made, puts the host's own folders in place, and runs the command;
the host ends with it, and all that runs there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# How often Linux repeats the end of a connection whose process is gone. By default that keeps a network without any
# process, and the interfaces in it, for minutes when the other end is gone too.
ORPHAN_TRIES = Path("/proc/sys/net/ipv4/tcp_orphan_retries")


def main(arguments: Sequence[str]) -> int:
    """Runs the host's program and returns its exit code when it ends; 1 when nobody says `go`."""
    folder, number, disk, *command = arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.readline() != "go\n":
        return 1
    ORPHAN_TRIES.write_text("1")
    _mount(Path(folder), number, disk)
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    while True:  # it is the parent of whatever loses its own
        pid, status = os.wait()
        if pid == program.pid:
            return os.waitstatus_to_exitcode(status) % 256


def _mount(folder: Path, number: str, disk: str) -> None:
    """Shows the host its own folders under names that are the same on every host, and hides those of the others."""
    mounted = folder / "hosts" / number
    _run("mount", "--bind", mounted, folder / "here")
    if disk:
        _run("mount", "-t", "tmpfs", "-o", f"size={disk},mode=755", "state", folder / "state")
    else:
        _run("mount", "--bind", mounted / "state", folder / "state")
    _run("mount", "-t", "tmpfs", "-o", "size=4k,mode=555,ro", "hidden", folder / "hosts")


def _run(*command: str | Path) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The process for which a server of bins works, and whose end it follows."""

import contextlib
import os
import select
from dataclasses import dataclass
from pathlib import Path

_EXECUTOR = "java"


@dataclass(frozen=True)
class Owner:
    """A process by its id and its start, in ticks since the machine's, -1 where that is not known."""

    pid: int
    start: int = -1

    @classmethod
    def of_this_process(cls) -> "Owner":
        """Returns the nearest ancestor that is a JVM, or this process where there is none."""
        pid = os.getpid()
        while pid > 1:
            status = _status(pid)
            if status is None:
                break
            if status[0] == _EXECUTOR:
                return cls(pid, status[2])
            pid = status[1]
        own = _status(os.getpid())
        return cls(os.getpid(), -1 if own is None else own[2])

    def watch(self) -> "End | None":
        """Returns what tells of the process's end; None when it has ended already."""
        descriptor = -1
        with contextlib.suppress(AttributeError, OSError):  # another system than Linux, or an old kernel
            descriptor = os.pidfd_open(self.pid)
        end = End(self, descriptor)
        return None if end.is_gone() else end


class End:
    """The end of a process, which can be waited for."""

    def __init__(self, owner: Owner, descriptor: int):
        self._owner, self._poll = owner, select.poll()
        self._has = descriptor >= 0
        if self._has:
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout_ms: int) -> bool:
        """Waits until the process has ended, so long at most, and returns whether it has."""
        if self._has:
            return bool(self._poll.poll(timeout_ms))
        self._poll.poll(timeout_ms)
        return self.is_gone()

    def is_gone(self) -> bool:
        """Returns whether there is no such process, or another one of its id."""
        try:
            os.kill(self._owner.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        now = _status(self._owner.pid)
        return now is not None and self._owner.start >= 0 and now[2] != self._owner.start


def _status(pid: int) -> tuple[str, int, int] | None:
    """Returns (name, parent, start) of a process, None where the system does not tell."""
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return head.partition("(")[2], int(fields[1]), int(fields[19])

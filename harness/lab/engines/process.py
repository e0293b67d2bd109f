"""One Java process of an external engine, which ends with this process, and a client of its HTTP interface."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import guard
from harness.setup.java import use_java
from impls.errors import StateError, UsageError

_GRACE_S = 20.0
_KILLED_S = 30.0
_LOG4J = """rootLogger.level=INFO
rootLogger.appenderRef.a.ref=A
appender.a.name=A
appender.a.type=Console
appender.a.layout.type=PatternLayout
appender.a.layout.pattern=%d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""


class JavaProcess:
    """A class of some jars, run as a program; its output is in `log`."""

    def __init__(self, name: str, jars: Sequence[Path], log: Path, options: Sequence[str] = ()):
        """Prepares a process: its name is for people, `options` are those of the JVM."""
        self.name, self._jars, self.log, self._options = name, jars, log, list(options)
        self._process: guard.GuardedProcess | None = None
        self._lock = threading.RLock()  # whoever looks at a process that is being replaced waits

    def start(self, program: str, arguments: Sequence[str | Path]) -> None:
        """Starts the class `program`; raises UsageError when no process can be made."""
        path = os.pathsep.join(map(str, self._jars))
        logging = self.log.with_suffix(".log4j.properties")
        command = [use_java(), *self._options, f"-Dlog4j.configurationFile={logging}", "-cp", path, program, *arguments]
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            logging.write_text(_LOG4J)
            with self.log.open("ab") as log:
                self._process = guard.spawn(command, stdout=log, stderr=log, grace_s=_GRACE_S)
        except OSError as error:
            raise UsageError(f"{self.name} cannot be started: {error}.") from error

    @property
    def pid(self) -> int | None:
        """Its process id, None before its start and after its end."""
        return None if self._process is None else self._process.pid

    def replace(self, program: str, arguments: Sequence[str | Path]) -> int:
        """Kills it with -9, starts it once more at once, as whoever deploys it would, and returns its id of before."""
        with self._lock:
            assert self._process is not None, "start() comes first"
            killed = self._process.pid
            os.kill(killed, signal.SIGKILL)
            self._process.wait(_KILLED_S)
            self.start(program, arguments)
            return killed

    def check(self) -> None:
        """Raises StateError when it has ended."""
        with self._lock:
            if self._process is None or (code := self._process.poll()) is not None:
                told = "has not been started" if self._process is None else f"has ended (exit code {code})"
                raise StateError(f"{self.name} {told}: {self._tail()}; its log is {self.log}.")

    def stop(self) -> None:
        """Ends it, gracefully if it can."""
        if self._process is not None:
            self._process.stop()
        self._process = None

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        telling = [line for line in lines if "ERROR" in line or "Exception" in line]
        return ((telling or lines)[-1:] or ["it said nothing"])[0].strip()


_DEADLINE_S = 60.0
_SAID = 500


class RestError(StateError):
    """The engine refused a request; `code` is that of HTTP."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Rest:
    """Asks at http://HOST:PORT; every method raises RestError for a refusal, StateError when nobody answers."""

    def __init__(self, host: str, port: int):
        self.port = port
        self.url = f"http://{host}:{port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the answer's JSON to a request with a JSON body, or with none."""
        data = None if body is None else json.dumps(body).encode()
        return self._sent(urllib.request.Request(self.url + path, data, _JSON, method=method))

    def upload(self, path: str, name: str, data: bytes) -> Any:
        """Returns the answer's JSON to a POST of a file, as a form would send it."""
        mark = b"----rescale"
        head = f'Content-Disposition: form-data; name="jarfile"; filename="{name}"\r\n'.encode()
        kind = b"Content-Type: application/x-java-archive\r\n\r\n"
        body = b"--" + mark + b"\r\n" + head + kind + data + b"\r\n--" + mark + b"--\r\n"
        form = {"Content-Type": f"multipart/form-data; boundary={mark.decode()}"}
        return self._sent(urllib.request.Request(self.url + path, body, form))

    def _sent(self, request: urllib.request.Request) -> Any:
        what = f"{request.get_method()} {request.full_url}"
        try:
            with urllib.request.urlopen(request, timeout=_DEADLINE_S) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            said = " ".join(error.read().decode(errors="replace").split())
            raise RestError(f"{what} was refused ({error.code}): {said[:_SAID]}", error.code) from error
        except (OSError, ValueError) as error:
            raise StateError(f"{what} has no answer: {error}.") from error


_JSON = {"Content-Type": "application/json"}

"""A client of an engine's own HTTP interface."""

import json
import urllib.error
import urllib.request
from typing import Any

from impls.errors import StateError

__all__ = ["Rest", "RestError"]

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

"""What the hosts of a query share to hand bins to each other: the secret, the certificate and the limits."""

import base64
import re
import secrets
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from impls.errors import UsageError
from impls.protocol.jsontext import from_text, to_text

TLS_NAME = "rescale-transfer"  # the name in every certificate: hosts have none that all agree on
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Transfer:
    """How bins go from host to host in one life of a query's driver; whoever has the token may read its state.

    Attributes:
        token: secret of the query and its generation.
        certificate, key: PEM of the certificate that both sides show and trust, and of its key; empty for no TLS.
        batch_bytes: about what one message carries; a larger value comes alone.
        streams: that a host serves at once; others wait up to `busy_s`.
        busy_s: how long a pull waits for its turn.
        connect_s: how long a puller waits for a connection.
        stall_s: how long it waits for the next message.
        bytes_per_s: slowest transfer that is waited for.
        memory_bytes: most that a server may allocate; one that needs more ends, and the next task starts another.
        unused_s: after so long without a task a server takes its query for ended, unless tasks are rarer.
    """

    token: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    batch_bytes: int = 1 << 20
    streams: int = 8
    busy_s: float = 4.0
    connect_s: float = 2.0
    stall_s: float = 6.0
    bytes_per_s: float = 1e6
    memory_bytes: int = 1 << 30
    unused_s: float = 60.0

    @classmethod
    def new(cls, certificate: bytes = b"", key: bytes = b"") -> "Transfer":
        """Returns settings with a new token."""
        return cls(secrets.token_bytes(_SECRET_BYTES), certificate, key)

    @property
    def scheme(self) -> str:
        """Scheme of the addresses."""
        return "grpc+tls" if self.certificate else "grpc+tcp"

    def deadline_s(self, expected_bytes: int) -> float:
        """Returns how long a transfer of so many bytes may take from its request to its end.

        It is longer than the wait for a server that says nothing, so that silence is told as silence.
        """
        return self.busy_s + 2 * self.stall_s + expected_bytes / self.bytes_per_s

    def to_json(self) -> bytes:
        """Returns the settings, secrets included, for the standard input of a process."""
        return to_text({name: _text(value) for name, value in asdict(self).items()})

    @classmethod
    def from_json(cls, text: bytes) -> "Transfer":
        """Reads what `to_json` wrote."""
        raw: dict[str, Any] = from_text(text)
        data: dict[str, Any] = {name: base64.b64decode(v) if isinstance(v, str) else v for name, v in raw.items()}
        return cls(**data)


def _text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


_DEADLINE_S = 30.0
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


def certificate_of(tls: str) -> tuple[bytes, bytes]:
    """Returns PEM of certificate and key, nothing for "none"; raises UsageError when there are none.

    Args:
        tls: "none"; "auto" for new ones, made by the openssl command; or a PEM file with both, in which the certificate
            is for the name rescale-transfer and signs itself.
    """
    if tls == "none":
        return b"", b""
    raw = _made() if tls == "auto" else _read(Path(tls))
    parts = {bytes(found[1]): bytes(found[0]) for found in _BLOCK.finditer(raw)}
    certificate = parts.get(b"CERTIFICATE", b"")
    key = next((part for kind, part in parts.items() if kind.endswith(b"PRIVATE KEY")), b"")
    if not (certificate and key):
        raise UsageError(f"{tls} has not both a certificate and a private key in PEM: put both into one file.")
    return certificate, key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"The certificate {path} cannot be read: {error.strerror}.") from error


def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder) / "key.pem", Path(folder) / "certificate.pem"
        command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-days", "3650", "-subj", f"/CN={TLS_NAME}", "-addext", f"subjectAltName=DNS:{TLS_NAME}"]
        try:
            subprocess.run(
                [*command, "-keyout", str(key), "-out", str(certificate)],
                check=True, capture_output=True, timeout=_DEADLINE_S,
            )  # fmt: skip
            return certificate.read_bytes() + key.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(f"No certificate can be made ({error}): install openssl, or give a PEM file.") from error

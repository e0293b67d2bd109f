"""The certificate that the hosts of a query show each other and trust: made for one life of its driver, or a user's."""

import re
import subprocess
import tempfile
from pathlib import Path

from impls.errors import UsageError
from impls.transfer.settings import TLS_NAME

__all__ = ["certificate_of"]

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

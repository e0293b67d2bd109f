"""What of a query is secret, and whether Spark brings it to its tasks on a channel that nobody else reads.

A task gets what it needs by Spark's own messages: there is no other way into a Python worker that has just begun, and a
broadcast would leave a file on every host. On another host's way these messages are open unless Spark encrypts them.
"""

import ipaddress
from collections.abc import Iterator, Mapping

from pyspark import SparkConf

from impls.addresses import has_secret
from impls.errors import UsageError
from impls.protocol.mechanism import Shared
from impls.spark.master import is_local, standalone_addresses
from impls.worker.output import Output
from impls.worker.sinks import Sink

TRUSTED = "spark.rescale.trustedNetwork"
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")  # either will do
_AUTHENTICATION = "spark.authenticate"
_SECRETS = (
    "password",
    "passphrase",
    "secret",
    "key.pem",
    "oauthbearer.config",
    "jaas",
)  # in names of a client's settings


def secrets_of(sink: Sink, shared: Shared | None, log: str | None, tls: str) -> list[str]:
    """Returns what of a query's parts only its owner may know, each as a phrase.

    The token that hosts show each other is none of them: who reads it as it travels also reads the records from which
    the state is made, as they go the same way.
    """
    return list(_secrets(sink, shared, log, tls))


def _secrets(sink: Sink, shared: Shared | None, log: str | None, tls: str) -> Iterator[str]:
    if isinstance(sink, Output):
        for name in sorted(sink.options):
            if any(word in name for word in _SECRETS):
                yield f"{name} of Output"
    if shared is not None and shared.has_secret:
        yield "the password of the store that all workers share"
    if log is not None and has_secret(log):
        yield "the key in the address of log_dir"
    if tls != "none":
        yield f"the private key of tls={tls}"


def check_channel(conf: SparkConf, secrets: list[str]) -> None:
    """Raises UsageError where a session would send what `secrets_of` has returned to other hosts in the open."""
    if secrets and (missing := missing_of(conf.get("spark.master", "") or "", dict(conf.getAll()))):
        raise UsageError(
            f"Spark would send {', '.join(secrets)} to other hosts in the open: set {' and '.join(missing)} for the "
            f"session, as in spark-defaults.conf, or {TRUSTED}=true where nobody else reads the network."
        )


def missing_of(master: str, settings: Mapping[str, str]) -> list[str]:
    """Returns the settings without which others can read what Spark sends to its tasks.

    Args:
        master: `spark.master`.
        settings: of the session.
    """

    def on(name: str) -> bool:
        return settings.get(name, "").lower() == "true"

    if _stays_here(master, settings.get("spark.driver.host", "localhost")) or on(TRUSTED):
        return []
    missing = [] if on(_AUTHENTICATION) else [f"{_AUTHENTICATION}=true"]
    return missing if any(map(on, _ENCRYPTION)) else [*missing, f"{_ENCRYPTION[0]}=true"]


def _stays_here(master: str, driver: str) -> bool:
    """Returns whether all messages stay on this machine; by a tunnel only those to the master do."""
    hosts = [host for host, _ in standalone_addresses(master)]
    inside = is_local(master) or master.startswith("local-cluster[")
    return inside or (bool(hosts) and all(map(_loopback, [*hosts, driver])))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

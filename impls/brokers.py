"""How a broker is reached: librdkafka's settings, from those of Spark's Kafka source, or of another client of ours."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from impls.errors import UsageError

_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")
_LOGINS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}  # mechanisms for which user and password are all there is
_JAAS = "sasl.jaas.config"
_PREFIX = "kafka."  # of an option of Spark's source that is the client's
_SAME = ("security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "ssl.key.password")
_PEM = {  # Java's name -> librdkafka's, of certificates and keys that are given as PEM, the only form that both have
    "ssl.truststore.certificates": "ssl.ca.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}  # fmt: skip
_LOGIN = re.compile(
    r"""\b(username|password|tokenauth)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_LOG = logging.getLogger(__name__)
_ESCAPED = re.compile(r"\\(.)")


def quiet(bootstrap: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Returns settings of a client whose errors come back from its calls alone."""
    return {**options, "bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises UsageError for settings with which there is no client; asks no broker."""
    try:
        AdminClient(dict(settings))
    except KafkaException as error:
        raise UsageError(f"These are no settings for a broker: {error.args[0].str()}.") from error


def security_of(options: Mapping[str, str]) -> dict[str, str]:
    """Returns those of a client's settings that every client of the same broker needs: SASL and TLS.

    >>> security_of({"sasl.mechanism": "PLAIN", "linger.ms": "1"})
    {'sasl.mechanism': 'PLAIN'}
    """
    return {name: value for name, value in options.items() if name.startswith(_SECURITY)}


def of_source(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the SASL and TLS settings of a Kafka source of Spark's as librdkafka has them.

    User and password are those of `kafka.sasl.jaas.config`. Certificates and keys are taken as PEM; what is in a store
    of Java's is left out, as librdkafka reads none, and so are other ways to log in than by a user's password.

    >>> of_source({"kafka.sasl.jaas.config": 'Module required username="u" password=p;'})
    {'sasl.username': 'u', 'sasl.password': 'p'}
    """
    given = {name.lower()[len(_PREFIX) :]: value for name, value in options.items() if name.lower().startswith(_PREFIX)}
    found = {name: given[name] for name in _SAME if name in given}
    found |= {ours: given[java] for java, ours in _PEM.items() if java in given}
    login = {m[1]: m[4] or _ESCAPED.sub(r"\1", m[2] or m[3] or "") for m in _LOGIN.finditer(given.get(_JAAS, ""))}
    if login.pop("tokenauth", "") == "true" or given.get("sasl.mechanism", "PLAIN") not in _LOGINS:
        login = {}
        found.pop("sasl.mechanism", None)
    found |= {f"sasl.{name}": value for name, value in login.items()}
    if given.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in given:
        found["ssl.ca.location"] = given["ssl.truststore.location"]
    if given.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in given:
        found |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), given["ssl.keystore.location"])
    if given.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def reaching(bootstrap: str, own: Mapping[str, str], other: Mapping[str, str], at: str) -> dict[str, str]:
    """Returns settings of a client of a broker, completed by those of another client of ours.

    Args:
        bootstrap: addresses of the broker.
        own: what is known of it.
        other: settings of the other client: they count where its broker has one of the addresses, or where the broker
            is known to ask for something.
        at: addresses of the other client's broker.
    """
    shared = bool(_addresses(bootstrap) & _addresses(at)) or own.get("security.protocol", "PLAINTEXT") != "PLAINTEXT"
    more = security_of(other) if shared else {}
    for settings in ({**more, **own}, more):
        found = {**settings, "bootstrap.servers": bootstrap}
        try:
            check_settings(quiet(bootstrap, found))
        except UsageError as error:
            _LOG.warning("The broker %s is asked without settings that are not understood here: %s", bootstrap, error)
        else:
            return found
    return {"bootstrap.servers": bootstrap}


def _addresses(bootstrap: str) -> set[str]:
    return {address.strip().lower() for address in bootstrap.split(",")} - {""}

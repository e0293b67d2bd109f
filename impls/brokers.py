"""How a broker is reached: librdkafka's settings, from those of Spark's Kafka source, or of another client of ours."""

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from impls.errors import UsageError

_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.")
_PREFIX = "kafka."  # of an option of Spark's source that is the client's
_SAME = ("security.protocol", "sasl.mechanism", "sasl.kerberos.service.name", "ssl.key.password")
_PEM = {  # Java's name -> librdkafka's, of certificates and keys that are given as PEM, the only form that both have
    "ssl.truststore.certificates": "ssl.ca.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}  # fmt: skip
_LOGIN = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")
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
    of Java's is left out, as librdkafka reads none.

    >>> of_source({"kafka.sasl.jaas.config": 'Module required username="u" password=p;'})
    {'sasl.username': 'u', 'sasl.password': 'p'}
    """
    given = {name.lower()[len(_PREFIX) :]: value for name, value in options.items() if name.lower().startswith(_PREFIX)}
    found = {name: given[name] for name in _SAME if name in given}
    found |= {ours: given[java] for java, ours in _PEM.items() if java in given}
    for name, plain, escaped in ((m[1], m[3], m[2]) for m in _LOGIN.finditer(given.get("sasl.jaas.config", ""))):
        found[f"sasl.{name}"] = plain or _ESCAPED.sub(r"\1", escaped)
    if given.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in given:
        found["ssl.ca.location"] = given["ssl.truststore.location"]
    if given.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found

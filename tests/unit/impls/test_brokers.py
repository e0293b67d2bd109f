"""How a broker is reached, from the options of Spark's source."""

import pytest

from impls.brokers import check_settings, of_source, security_of
from impls.errors import UsageError


@pytest.mark.parametrize(
    ("line", "user", "password"),
    [
        ('org.x.PlainLoginModule required username="ann" password="a b";', "ann", "a b"),
        ('org.x.ScramLoginModule required password="say \\"hi\\" \\\\" username=ann;', "ann", 'say "hi" \\'),
        ("M required serviceName=x username=ann password=open;", "ann", "open"),
        ('M required my_username="other" username="ann" password="";', "ann", ""),
    ],
)
def test_user_and_password_are_those_of_the_jaas_line(line, user, password):
    found = of_source({"kafka.sasl.jaas.config": line})
    assert found == {"sasl.username": user, "sasl.password": password}


def test_certificates_are_taken_as_pem_alone():
    pem = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}
    own = {"kafka.ssl.keystore.key": "KEY", "kafka.ssl.keystore.certificate.chain": "CHAIN"}
    assert of_source({**pem, **own}) == {
        "ssl.ca.location": "/ca.pem", "ssl.key.pem": "KEY", "ssl.certificate.pem": "CHAIN",
    }  # fmt: skip
    assert of_source({"kafka.ssl.truststore.location": "/store.jks", "kafka.ssl.truststore.password": "x"}) == {}
    assert of_source({"KAFKA.SSL.endpoint.identification.algorithm": ""}) == {
        "ssl.endpoint.identification.algorithm": "none"
    }
    assert of_source({"subscribe": "a", "kafka.bootstrap.servers": "b:1"}) == {}


def test_only_what_every_client_of_a_broker_needs_is_shared():
    producer = {"linger.ms": "1", "enable.idempotence": "true", "security.protocol": "SSL", "ssl.ca.location": "/ca"}
    assert security_of(producer) == {"security.protocol": "SSL", "ssl.ca.location": "/ca"}


def test_settings_that_make_no_client_are_refused_in_a_sentence():
    with pytest.raises(UsageError, match="These are no settings for a broker: "):
        check_settings({"bootstrap.servers": "a:1", "security.protocol": "SECRET"})

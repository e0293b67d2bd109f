"""How a broker is reached, from the options of Spark's source."""

import pytest

from impls.brokers import check_settings, of_source, reaching, security_of
from impls.errors import UsageError


@pytest.mark.parametrize(
    ("line", "user", "password"),
    [
        ('org.x.PlainLoginModule required username="ann" password="a b";', "ann", "a b"),
        ('org.x.ScramLoginModule required password="say \\"hi\\" \\\\" username=ann;', "ann", 'say "hi" \\'),
        ("M required username='ann' password='p \\' q';", "ann", "p ' q"),
        ("M required serviceName=x username=ann password=open;", "ann", "open"),
        ('M required my_username="other" username="ann" password="";', "ann", ""),
    ],
)
def test_user_and_password_are_those_of_the_jaas_line(line, user, password):
    found = of_source({"kafka.sasl.jaas.config": line})
    assert found == {"sasl.username": user, "sasl.password": password}


def test_certificates_are_taken_as_pem_alone():
    store = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "/own.pem"}
    assert of_source(store) == {"ssl.certificate.location": "/own.pem", "ssl.key.location": "/own.pem"}
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


def test_another_way_to_log_in_than_a_password_is_left_out():
    token = 'ScramLoginModule required tokenauth="true" username="id" password="hmac";'
    own = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": token}
    assert of_source({**own, "kafka.sasl.mechanism": "SCRAM-SHA-256"}) == {"security.protocol": "SASL_SSL"}
    for mechanism in ("GSSAPI", "AWS_MSK_IAM", "OAUTHBEARER"):
        line = {"kafka.sasl.jaas.config": 'M required username="a" password="b";', "kafka.sasl.mechanism": mechanism}
        assert of_source({**own, **line}) == {"security.protocol": "SASL_SSL"}


PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("bootstrap", "own", "at", "more"),
    [
        ("a:1,b:1", {}, "b:1, c:1", PLAIN),  # one cluster, by other addresses
        ("a:1", {"security.protocol": "SASL_SSL"}, "z:1", PLAIN),  # what it lacks
        ("a:1", {}, "z:1", {}),  # another cluster, which asks for nothing
        ("a:1", {"sasl.mechanism": "NONE-SUCH"}, "a:1", PLAIN),  # what makes no client
    ],
)
def test_a_client_is_completed_by_the_settings_of_another(bootstrap, own, at, more):
    found = reaching(bootstrap, own, {**PLAIN, "linger.ms": "1"}, at)
    assert found == {**more, "bootstrap.servers": bootstrap}


def test_the_sources_own_settings_win():
    own = {**PLAIN, "sasl.username": "reader"}
    assert reaching("a:1", own, PLAIN, "a:1")["sasl.username"] == "reader"


def test_only_what_every_client_of_a_broker_needs_is_shared():
    producer = {"linger.ms": "1", "enable.idempotence": "true", "security.protocol": "SSL", "ssl.ca.location": "/ca"}
    assert security_of(producer) == {"security.protocol": "SSL", "ssl.ca.location": "/ca"}


def test_settings_that_make_no_client_are_refused_in_a_sentence():
    with pytest.raises(UsageError, match="These are no settings for a broker: "):
        check_settings({"bootstrap.servers": "a:1", "security.protocol": "SECRET"})

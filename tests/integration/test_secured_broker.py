"""A broker that asks for a password over TLS: a whole query with its control topic, and no secret in what it leaves."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pipeline import DEADLINE_S, await_true

import impls
from harness.lab.broker import EmbeddedBroker
from harness.lab.ports import LOOPBACK, free_ports
from harness.setup.java import ensure_jars, find_java
from impls.controltopic.topic import ControlTopic
from impls.operators import HashCount
from impls.spark.input import QueryInput
from impls.worker.results import ResultReader

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
USER, SECRET = "rescale", "open-sesame-7341"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{MODULE} required username="{USER}" password="{SECRET}";'
LINES = """
listeners=PLAINTEXT://{{host}}:{{port}},CONTROLLER://{{host}}:{{controller}},SASL_SSL://{{host}}:{secured}
advertised.listeners=PLAINTEXT://{{host}}:{{port}},SASL_SSL://{{host}}:{secured}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={module} required user_{user}="{secret}";
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
"""
RECORDS, USERS = 400, 20


@dataclass(frozen=True)
class Secured:
    """The broker's address for clients with a password, and the certificate by which they know it."""

    address: str
    certificate: Path

    @property
    def settings(self) -> dict[str, str]:
        """As librdkafka has them."""
        return {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": SECRET,
            "ssl.ca.location": str(self.certificate),
        }  # fmt: skip

    @property
    def source(self) -> dict[str, str]:
        """As Spark's source has them."""
        return {
            "kafka.bootstrap.servers": self.address, "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": LOGIN, "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.certificate),
        }  # fmt: skip

    def client(self, **more):
        return {"bootstrap.servers": self.address, "log_level": 0, **self.settings, **more}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "30", "-subj", "/CN=broker"]
    names = ["-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True, timeout=60)
    (folder / "keystore.pem").write_text(key.read_text() + certificate.read_text())
    (port,) = free_ports(LOOPBACK)
    lines = LINES.format(secured=port, module=MODULE, user=USER, secret=SECRET, keystore=folder / "keystore.pem")
    with EmbeddedBroker(folder / "broker", ensure_jars().broker, find_java(), more=lines):
        broker = Secured(f"{LOOPBACK}:{port}", certificate)
        admin = AdminClient(broker.client())
        for made in admin.create_topics([NewTopic("in", 2, 1), NewTopic("out", 2, 1)]).values():
            made.result(60)
        yield broker


def rows_of(spark, secured):
    source = spark.readStream.format("kafka").options(**secured.source).option("subscribe", "in")
    rows = source.option("startingOffsets", "earliest").load()
    return rows.selectExpr("bigint(string(key)) user", "partition", "offset")


def send(secured, records):
    producer = Producer(secured.client(**{"enable.idempotence": "true"}))
    for number in range(records):
        producer.produce("in", b"", str(number % USERS).encode(), partition=number % 2)
    assert producer.flush(60) == 0


def last_counts(secured):
    consumer = Consumer(secured.client(**{"group.id": "check", "enable.auto.commit": "false"}))
    consumer.assign([TopicPartition("out", part, 0) for part in range(2)])
    raw = []
    try:
        while messages := consumer.consume(10_000, 2.0):
            raw += [(m.partition(), m.headers(), m.key(), m.value()) for m in messages if m.error() is None]
    finally:
        consumer.close()
    return {result.key: int.from_bytes(result.value, "little") for result in ResultReader(raw)}


def test_a_whole_query_with_its_control_topic_and_no_secret_in_what_it_leaves(spark, secured, tmp_path):
    send(secured, RECORDS)
    settings = tmp_path / "broker.settings"
    settings.write_text("".join(f"{name}={value}\n" for name, value in secured.settings.items()))
    output = impls.Output(secured.address, "out", 2, secured.settings)
    control = ControlTopic(secured.address, "control", "counts", options=secured.settings)
    left = tmp_path / "left"
    with impls.stream(
        rows_of(spark, secured), key="user", operator=HashCount(), results=output, state_dir=left / "state",
        checkpoint=left / "checkpoint", workers=2, bins=16, control=control,
    ) as query:  # fmt: skip
        await_true(lambda: query.await_end(0) or sum(last_counts(secured).values()) == RECORDS, "the counts")
        done = subprocess.run(
            [sys.executable, "-P", "harness/cli/program.py", "--search-root", str(ROOT), "control", "rescale",
             "--workers", "3", "--bootstrap", secured.address, "--topic", "control", "--settings", str(settings),
             "--query", "counts", "--wait", str(DEADLINE_S)],
            cwd=ROOT, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        assert query.await_migration(DEADLINE_S)
        send(secured, RECORDS)
        await_true(lambda: query.await_end(0) or sum(last_counts(secured).values()) == 2 * RECORDS, "all counts")
        told = [json.dumps(query.status()), repr(output), repr(control), done.stdout, done.stderr]
        assert query.status()["workers"] == 3
    assert not [text for text in told if SECRET in text]
    assert not [path for path in left.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_how_far_the_source_goes_is_known_by_the_sources_own_settings(spark, secured, tmp_path):
    """Also where results go elsewhere."""
    read = QueryInput.of(rows_of(spark, secured), impls.ForeachBatch(print), tmp_path, numbered=False)
    assert read.broker == {**secured.settings, "bootstrap.servers": secured.address}
    assert read.topics.ids.keys() == {"in"}

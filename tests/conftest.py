"""One Kafka broker and one Spark session for the whole test run, started when the first test asks for them."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """Bootstrap address of the shared broker."""
    from harness.broker import EmbeddedBroker
    from harness.setup.jars import ensure_jars
    from harness.setup.java import find_java

    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), ensure_jars().broker, find_java()) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def topic_factory(kafka):
    """Makes topics: topic_factory(partitions) returns the name of a new one."""
    from harness.broker import create_topics

    numbers = itertools.count()

    def make(partitions: int) -> str:
        name = f"topic-{next(numbers)}"
        create_topics(kafka, {name: partitions})
        return name

    return make


@pytest.fixture(scope="session")
def spark():
    """The shared Spark session: four tasks at once, with the Kafka connector."""
    from harness.setup.jars import ensure_jars
    from impls.runtime.session import spark_session

    session = spark_session(ensure_jars().spark, threads=4, name="tests")
    yield session
    session.stop()

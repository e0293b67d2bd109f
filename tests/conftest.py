"""One Kafka broker and one Spark session for the whole test run, started when the first test asks for them."""

import itertools
import os
import signal
import sys
import time
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
from hypothesis import settings
from tiers import HANDS, Traits, in_loop, in_suite, store_costs

settings.register_profile("project", deadline=None)  # no absolute time is asserted
settings.register_profile("fast", deadline=None, max_examples=20)  # where a test names no number of its own
settings.load_profile("project")

# What takes longest begins first, so that processes end together: a group (see below), or the begin of its name.
FIRST = ("spark", "tests/integration/test_engines_bench", "tests/integration/test_faults",
         "tests/integration/test_standalone", "tests/integration/test_shipped_environment",
         "tests/integration/test_docs_run", "tests/integration/test_package", "tests/integration/test_examples",
         "tests/integration/test_autoscale_bench", "tests/integration/test_resume",
         "tests/integration/test_nexmark_rescale", "tests/integration/test_n", "tests/integration/test_perf",
         "tests/integration", "tests/simulation", "tests/property", "tests/unit/plots",
         "tests/unit/generators")  # fmt: skip
LOOP = ("tests/unit/", "tests/property/", "tests/simulation/", "tests/test_")  # what `./inv test --fast` reads
OF_THE_PROCESS = {
    "PYTEST_CURRENT_TEST",
    "JAVA_HOME",
    "PYTHONPATH",
    "SPARK_LOCAL_IP",
    "SPARK_HOME",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
}  # variables that a session or a JVM, once begun, leaves for the process
STORE_COSTS = "STORE_COSTS"  # variable that asks for the times of what is dealt to be stored
STORE = pytest.StashKey[bool]()
DEALT = "dealt"  # property of a report: its test is in one hand only
_STEPS_BACK = 10  # of priority: what only computes uses the time in which tests of Spark and Kafka wait
_PATIENCE = 4  # times the limit of a test in a process that steps back: seconds of computing take it minutes


def pytest_addoption(parser):
    """Declares the tiers."""
    parser.addoption("--fast", action="store_true", help="the loop: no `lengthy` test, a sample of `sampled` ones")
    parser.addoption("--hand", type=int, choices=range(HANDS), help="the suite: of what is dealt, this hand only")


def pytest_configure(config):
    """Takes the smaller profile where a tier is run, before a test is read; archives the classes of the JVMs."""
    if config.getoption("fast") or config.getoption("hand") is not None:
        settings.load_profile("fast")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: commands would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STORE] = bool(os.environ.pop(STORE_COSTS, ""))  # a run of pytest within a test stores nothing
    whole = config.args_source is config.ArgsSource.TESTPATHS and not hasattr(config, "workerinput")
    if whole and not config.getoption("fast") and not config.getoption("collectonly"):
        from classes import end, use_archives

        if maker := use_archives():  # before the processes of xdist start: they get the environment of this one
            config.add_cleanup(partial(end, maker))


def pytest_itemcollected(item):
    """Refuses a test of the one Spark session outside of the files that are kept together for its sake."""
    if "spark" in item.fixturenames and group_of(item.nodeid) != "spark":
        raise pytest.UsageError(f"{item.nodeid} uses the Spark session: mark it, or its file, with pytest.mark.spark.")


def pytest_xdist_make_scheduler(config, log):
    """Gives each process whole groups; xdist's own `loadgroup` gives it single tests under pytest 9.2, unasked."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

        def _computing(self):
            return [group for group in self.workqueue if not waits(group)]

        def _assign_work_unit(self, node):
            if steps_back(node.gateway.id, self.numnodes) and self._computing():
                self.workqueue.move_to_end(self._computing()[0], last=False)
            super()._assign_work_unit(node)

        def _reschedule(self, node):
            computes = not all(map(waits, self.assigned_work[node]))
            if steps_back(node.gateway.id, self.numnodes) and computes and not self._computing():
                node.shutdown()  # a process of low priority starts no Spark
            else:
                super()._reschedule(node)

    return Groups(config, log)


def pytest_collection_modifyitems(config, items):
    """Leaves out what the tier does not have, and puts first the groups that take longest."""
    kept = {item: in_tier(config, traits(item)) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not kept[item]])
    items[:] = [item for item in items if kept[item]]
    for item in filter(is_dealt, items):
        item.user_properties.append((DEALT, True))
    places = {
        group: [group.startswith(f) for f in (*FIRST, "")].index(True) for group in {group_of(i.nodeid) for i in items}
    }
    items.sort(key=lambda item: places[group_of(item.nodeid)])
    worker = getattr(config, "workerinput", {"workerid": "", "workercount": 1})
    if steps_back(worker["workerid"], worker["workercount"]) and not all(map(waits, places)):
        os.nice(_STEPS_BACK)
        for item in items:
            own = item.get_closest_marker("timeout")
            limit = own.args[0] if own else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(_PATIENCE * limit), append=False)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """Says which hand was played; STORE_COSTS=1 in the environment stores the times of what is dealt."""
    if config.stash[STORE] and exitstatus == pytest.ExitCode.OK:
        seconds = Counter()
        for report in itertools.chain(*(terminalreporter.stats.get(kind, ()) for kind in ("", "passed"))):
            if (DEALT, True) in getattr(report, "user_properties", ()):
                seconds[report.nodeid] += report.duration
        store_costs(seconds)
    if (hand := config.getoption("hand")) is not None:
        others = ", ".join(str(other) for other in range(HANDS) if other != hand)
        terminalreporter.write_line(
            f"Hand {hand} of 0 to {HANDS - 1} was played: a fifth of the tests that are dealt. "
            f"Another one: ./inv test --hand N (N is {others}); everything: ./inv test --all."
        )


@cache
def of_session(path):
    return "pytest.mark.spark" in (Path(__file__).parents[1] / path).read_text()


def group_of(nodeid):
    """The tests of the one Spark session, or those of a file."""
    path = nodeid.partition("::")[0]
    return "spark" if of_session(path) else path


def waits(group):
    """Whether the tests of a group start other programs and wait for them."""
    return group == "spark" or group.startswith("tests/integration")


def steps_back(process, processes):
    """Whether a process takes only what computes, at a low priority: the last one of three or more."""
    return processes > 2 and process == f"gw{processes - 1}"


def traits(item):
    """What decides over a test, from its markers and its place."""
    sampled, capability = item.get_closest_marker("sampled"), item.get_closest_marker("capability")
    case = item.callspec.id if "[" in item.name else ""
    return Traits(
        item.nodeid,
        lengthy=any(item.get_closest_marker(name) for name in ("lengthy", "slow")) or not item.nodeid.startswith(LOOP),
        sampled=sampled.args[0] if sampled and case else 1,
        capability=capability is not None and (not capability.args or case in capability.args),
    )


def is_dealt(item):
    """Whether a test is in one hand of the suite only."""
    test = traits(item)
    return not (in_loop(test) or test.capability or any(item.get_closest_marker(name) for name in ("slow", "stress")))


def in_tier(config, test):
    if config.getoption("fast"):
        return in_loop(test)
    hand = config.getoption("hand")
    return hand is None or in_suite(test, [hand])


@pytest.fixture(autouse=True)
def nothing_left_running():
    """Ends what a test has left running."""
    from processes import end_all

    yield
    end_all()


@pytest.fixture(autouse=True)
def nothing_left_changed(nothing_left_running):
    """Fails a test that leaves the process with another folder, search path or environment: others would inherit it."""
    before = _of_the_process()
    yield
    after = _of_the_process()
    os.chdir(before["folder"])
    sys.path[:] = before["search path"]
    left = {name: after.get(name) for name in before | after if before.get(name) != after.get(name)}
    assert not left, f"the test has left {left}"


def _of_the_process():
    own = {f"variable {name}": value for name, value in os.environ.items() if name not in OF_THE_PROCESS}
    return {"folder": Path.cwd(), "search path": list(sys.path), **own}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """Bootstrap address of the shared broker."""
    from topics import producer_for

    from harness.lab.broker import EmbeddedBroker
    from harness.setup.java import ensure_jars, find_java
    from impls.worker.output import close_producers

    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), ensure_jars().broker, find_java()) as broker:
        yield broker.bootstrap
        producer_for.cache_clear()
        close_producers()


@pytest.fixture(scope="session")
def topic_factory(kafka):
    """Makes topics: topic_factory(partitions) returns the name of a new one."""
    from harness.lab.topics import create_topics

    numbers = itertools.count()

    def make(partitions: int) -> str:
        name = f"topic-{next(numbers)}"
        create_topics(kafka, {name: partitions})
        return name

    return make


@pytest.fixture(scope="session")
def spark(kafka):
    """The shared Spark session: four tasks at once, with the Kafka connector; it ends before the broker does."""
    from harness.setup.java import ensure_jars
    from impls.spark.session import spark_session

    keep = {"spark.sql.streaming.minBatchesToRetain": "100000"}  # the oracle reads all of Spark's offset log
    session = spark_session(ensure_jars().spark, threads=4, name="tests", settings=keep)
    yield session
    session.stop()


@pytest.fixture
def task(tmp_path):
    """A worker's first task in real time: it counts keys in four bins, with a changelog and results in memory."""
    import numpy as np
    from memory import RESULTS, MemoryOutput

    from impls.durability.files import Files
    from impls.durability.frame import FOLDER
    from impls.operators import HashCount
    from impls.protocol.order import EpochOrder
    from impls.protocol.plan import EpochPlan, WrittenPlan
    from impls.worker.query import QuerySpec, Task

    files, bins = Files(str(tmp_path / "checkpoint")), 4
    files.make_folders([FOLDER])
    output, state = MemoryOutput(str(tmp_path)), str(tmp_path / "state")
    spec = QuerySpec("q", bins, HashCount(), output, state, files, repeats=True)
    yield Task(spec, EpochOrder(WrittenPlan(0, 1, 1, EpochPlan(np.zeros(bins, np.int32))), first=True), 0)
    RESULTS.pop(str(tmp_path), None)


@pytest.fixture
def board():
    """The driver's side of connections with the tasks of a real-time query."""
    from impls.realtime.link import Switchboard

    with Switchboard() as made:
        yield made


class TopicReader:
    """Reads a results topic from its beginning, repeats removed."""

    def __init__(self, bootstrap: str, topic: str):
        from confluent_kafka import Consumer, TopicPartition

        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
        count = len(self._consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(count)])
        self._values: list[bytes] = []

        from impls.worker.results import Deduplicator

        self._seen = Deduplicator()

    def wait_for(self, number: int, what: str, deadline_s: float = 60.0) -> list[bytes]:
        """Returns all values read when there are `number`, in partition order; fails when the deadline passes."""
        from impls.worker.results import number_of

        end = time.monotonic() + deadline_s
        while len(self._values) < number:
            assert time.monotonic() < end, f"waited {deadline_s} s for {what}: {len(self._values)} of {number} came"
            for message in self._consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                n = number_of(message.headers())
                if self._seen.accept(message.partition(), n):
                    self._values.append(message.value())
        return self._values

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def results_of(kafka):
    """results_of(topic) returns a reader of a results topic; the same one for the same topic."""
    readers: dict[str, TopicReader] = {}

    def reader(topic: str) -> TopicReader:
        return readers.setdefault(topic, TopicReader(kafka, topic)) if topic not in readers else readers[topic]

    yield reader
    for opened in readers.values():
        opened.close()

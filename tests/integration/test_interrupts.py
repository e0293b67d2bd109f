"""Ctrl-C while the main thread waits for the JVM: a KeyboardInterrupt, and no stack trace beside it."""

import signal
import sys
import threading
import time

import pytest

pytestmark = [pytest.mark.lengthy, pytest.mark.spark]
_DEADLINE_S = 30
_SLEEP_MS = 5_000


@pytest.fixture
def interrupted():
    """Sends SIGINT to the main thread as soon as it reads py4j's answer; the handler is Python's own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        end = time.monotonic() + _DEADLINE_S
        while sys._current_frames()[main].f_code.co_name != "readinto":
            assert time.monotonic() < end, "the main thread has not asked the JVM"
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=send)
    yield thread
    thread.join(_DEADLINE_S)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def others(spark):
    """Threads of the JVM that answer two other threads, one idle, one in a call: before the test and at its end."""
    thread, latch = spark._jvm.java.lang.Thread, spark._jvm.java.util.concurrent.CountDownLatch(1)
    asked, go_on, seen = threading.Barrier(3), threading.Event(), []

    def run(wait) -> None:
        before = str(thread.currentThread())
        asked.wait(_DEADLINE_S)
        wait()
        seen.append((before, str(thread.currentThread())))

    threads = [threading.Thread(target=run, args=(wait,)) for wait in (getattr(latch, "await"), go_on.wait)]
    for each in threads:
        each.start()
    asked.wait(_DEADLINE_S)

    def ended() -> list[tuple[str, str]]:
        latch.countDown()
        go_on.set()
        for each in threads:
            each.join(_DEADLINE_S)
        return seen

    yield ended
    ended()


def test_it_is_a_keyboard_interrupt_that_prints_nothing_and_the_session_goes_on(spark, others, interrupted, caplog):
    jvm = spark._jvm.java.lang.Thread
    interrupted.start()
    with pytest.raises(KeyboardInterrupt):
        jvm.sleep(_SLEEP_MS)
    assert not [record for record in caplog.records if record.exc_info], "nothing is said twice"
    assert spark.range(3).count() == 3
    seen = others()
    assert len(seen) == 2
    assert all(before == after for before, after in seen), "connections of other threads are as they were"

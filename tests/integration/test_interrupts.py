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


def test_it_is_a_keyboard_interrupt_that_prints_nothing_and_the_session_goes_on(spark, interrupted, caplog):
    jvm = spark._jvm.java.lang.Thread
    interrupted.start()
    with pytest.raises(KeyboardInterrupt):
        jvm.sleep(_SLEEP_MS)
    assert not [record for record in caplog.records if record.exc_info], "nothing is said twice"
    assert spark.range(3).count() == 3

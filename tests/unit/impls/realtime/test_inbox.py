"""The inbox: what is put is taken once and in order, and who puts too much waits."""

import threading

import pytest

from impls.realtime.flow import Inbox

DEADLINE_S = 30.0


def test_everything_that_came_is_taken_at_once():
    inbox: Inbox[int] = Inbox(100)
    inbox.put(1, 10)
    inbox.put(2, 10)
    inbox.tell("word")
    assert inbox.take(0) == (["word"], [1, 2], False)
    assert inbox.take(0) == ([], [], False)
    inbox.end()
    assert inbox.take(DEADLINE_S) == ([], [], True)


def test_the_end_wakes_once_and_then_only_messages_do():
    inbox: Inbox[int] = Inbox(100)
    inbox.end()
    assert inbox.take(DEADLINE_S) == ([], [], True)
    told = threading.Timer(0.05, inbox.tell, ["word"])
    told.start()
    assert inbox.take(DEADLINE_S) == (["word"], [], True)


def test_who_puts_more_than_the_bound_waits_until_it_is_taken():
    inbox: Inbox[int] = Inbox(100)
    inbox.put(0, 500)  # a value larger than the bound fits when nothing else is there
    put = threading.Event()

    def more() -> None:
        for value in range(1, 5):
            inbox.put(value, 60)
        put.set()

    threading.Thread(target=more, daemon=True).start()
    taken: list[int] = []
    while len(taken) < 5:
        _, values, _ = inbox.take(DEADLINE_S)
        assert len(values) == 1, "two values of 60 bytes are more than the bound"
        taken += values
    assert taken == [0, 1, 2, 3, 4]
    assert put.wait(DEADLINE_S)


def test_a_failure_is_raised_and_a_closed_inbox_lets_go():
    inbox: Inbox[int] = Inbox(1)
    inbox.put(1, 1)
    inbox.fail(ValueError("first"))
    inbox.fail(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        inbox.take(DEADLINE_S)
    done = threading.Event()

    def put() -> None:
        inbox.put(2, 1)
        done.set()

    threading.Thread(target=put, daemon=True).start()
    inbox.close()
    assert done.wait(DEADLINE_S)

"""Driver and tasks hear each other, strangers are turned away, and a lost task is noticed."""

import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest
from switchboards import DEADLINE_S, heard

from impls.protocol.session import Failed, Hello, Marks
from impls.realtime.link import Event, Link, Lost, Switchboard

FIRST = Hello("router", 0, 2, "run", 0, 1)
LATER = replace(FIRST, batch=1)


def ended(hear: Callable[[], object]) -> threading.Event:
    """Set when a thread that hears got EOFError."""
    done = threading.Event()

    def wait() -> None:
        with pytest.raises(EOFError):
            hear()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    return done


def test_both_sides_hear_each_other(board):
    with Link(board.address, board.key) as link:
        link.say(FIRST)
        assert heard(board) == Event(FIRST, FIRST)
        assert board.send("router", 0, Marks(3, ((0, 1),)))
        assert link.hear() == Marks(3, ((0, 1),))
        link.say(Failed("router", 0, "StateError", "why"))
        assert heard(board) == Event(FIRST, Failed("router", 0, "StateError", "why"))
    assert heard(board) == Event(FIRST, Lost())
    assert not board.send("router", 0, Marks(4, ()))


def test_nobody_is_sent_to_before_its_hello_was_heard(board):
    with Link(board.address, board.key) as old, Link(board.address, board.key) as new:
        old.say(FIRST)
        heard(board)
        new.say(LATER)
        board.send("router", 0, "for the old one")
        assert old.hear() == "for the old one"
        assert heard(board).message == LATER
        board.send("router", 0, "for the new one")
        assert new.hear() == "for the new one"
        old.close()
        assert heard(board) == Event(FIRST, Lost())
        assert board.send("router", 0, "still there")
        assert new.hear() == "still there"


def test_a_task_that_does_not_read_delays_nobody(board):
    with Link(board.address, board.key) as silent, Link(board.address, board.key) as other:
        silent.say(FIRST)
        heard(board)
        other.say(replace(FIRST, index=1))
        heard(board)
        for _ in range(100):
            board.send("router", 0, bytes(1 << 16))
        board.send("router", 1, "word")
        assert other.hear() == "word"


def test_the_driver_adds_what_a_task_cannot_know():
    with Switchboard(lambda hello: replace(hello, of=7)) as board, Link(board.address, board.key) as link:
        link.say(FIRST)
        assert heard(board).peer.of == 7


def test_who_has_not_the_key_is_not_heard_and_holds_nobody_up(board):
    with pytest.raises((AuthenticationError, EOFError)):
        Link(board.address, b"wrong")
    stranger = Client(board.address, "AF_UNIX")
    stranger.send_bytes(b"hello")
    with Link(board.address, board.key) as link:
        link.say(FIRST)
        assert heard(board) == Event(FIRST, FIRST)
    assert heard(board) == Event(FIRST, Lost())
    stranger.close()


def test_a_task_hears_that_the_driver_is_gone():
    board = Switchboard()
    link = Link(board.address, board.key)
    link.say(FIRST)
    heard(board)
    done = ended(link.hear)
    board.close()
    assert done.wait(DEADLINE_S)
    with pytest.raises(EOFError):
        link.say(LATER)
    with pytest.raises(EOFError):
        Link(board.address, board.key)


def test_closing_a_link_wakes_who_hears(board):
    link = Link(board.address, board.key)
    link.say(FIRST)
    done = ended(link.hear)
    link.close()
    assert done.wait(DEADLINE_S)

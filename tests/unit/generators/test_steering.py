"""A producer that may be told to go on waits for the word, and obeys it."""

import threading

import pytest

from generators import stdin
from generators.spec import GeneratorError
from generators.stdin import Steering


def test_one_that_is_not_extendable_ends_at_once():
    assert Steering(threading.Event(), extendable=False).goes_on(10) is None


def test_the_words_are_obeyed_and_others_passed_over():
    told = Steering(threading.Event(), extendable=True)
    told.take(b"reco")
    told.take(b"rds 25\nrecords\nwhat\nrecords 3")
    assert told.goes_on(10) == 25, "half a line is not taken"
    told.take(b"0\nrecords 20\n")
    assert told.goes_on(25) == 30, "a stream does not become shorter"
    told.take(b"end\n")
    assert told.goes_on(10) == 30, "what was promised is sent before the end"
    assert told.goes_on(30) is None


def test_it_starts_when_it_is_told():
    told = Steering(threading.Event(), extendable=False)
    told.take(b"start\nstart now\nstart 1700000000000000\n")
    assert told.starts_us() == 1_700_000_000_000_000


def test_a_stop_ends_the_wait():
    stop = threading.Event()
    told = Steering(stop, extendable=True)
    threading.Timer(0.1, stop.set).start()
    assert told.goes_on(10) is None
    assert told.starts_us() == 0


def test_without_a_word_it_says_so(monkeypatch):
    monkeypatch.setattr(stdin, "_WORD_DEADLINE_S", 0.1)
    with pytest.raises(GeneratorError, match="go on after 10 records"):
        Steering(threading.Event(), extendable=True).goes_on(10)
    with pytest.raises(GeneratorError, match=r"when to start\."):
        Steering(threading.Event(), extendable=False).starts_us()

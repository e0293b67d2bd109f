"""The control journal and the carrying out of commands, with a real driver: what is kept, and what a stop leaves."""

import pytest
from controlled import Input, Query, record

from impls.controltopic import listener as logs
from impls.controltopic.topic import ControlTopic, TimeFinder
from impls.driver.epochs import QueryEnded
from impls.driver.journal import read_journal
from impls.errors import StateError, UsageError

STOP = b'{"id": "end", "do": "stop"}'


@pytest.fixture
def query(tmp_path):
    with Query(tmp_path, "q", [[]], Input([[1, 2, 3]])) as made:
        made.run()
        yield made


def test_what_follows_a_stop_waits_for_the_next_start(query):
    query.topic[0] += [record("before"), STOP, record("behind")]
    query.read(9)
    with pytest.raises(QueryEnded):
        query.run()
    assert list(query.log.pending.waiting) == ["behind"]
    assert query.log.pending.done["end"]["answer"] == {"stopping": True}
    query.start()
    query.run()
    assert [(one["id"], one["epoch"], one["generation"]) for one in query.done] == [
        ("before", 1, 1), ("end", 1, 1), ("behind", 1, 2),
    ]  # fmt: skip
    assert len(query.opened.read("commands")) == 2


def test_a_command_that_is_refused_because_the_query_is_stopped_meanwhile_is_not_answered(query):
    def stopped(_request):
        query.driver.ending = True
        raise UsageError("The query has ended.")

    query.carrier._answer = stopped
    query.topic[0].append(record("a"))
    query.read(9)
    with pytest.raises(QueryEnded):
        query.run()
    assert list(query.log.pending.waiting) == ["a"]


@pytest.mark.parametrize(("request_", "words"), [
    ({"do": "fly"}, "The request 'fly' is unknown."),
    ({"do": "rescale"}, "The request is not understood: KeyError: 'workers'."),
    ({"do": "rescale", "workers": 2, "policy": 5}, "The request is not understood: AttributeError: "),
    ({"do": "rescale", "workers": "x"}, "The request is not understood: ValueError: invalid literal"),
])  # fmt: skip
def test_a_request_that_cannot_be_carried_out_is_refused_and_the_query_goes_on(query, request_, words):
    from impls.protocol.jsontext import to_text

    query.topic[0] += [to_text({"id": "a", **request_}), record("b")]
    query.read(9)
    query.run()
    assert query.log.pending.done["a"]["error"].startswith(words)
    assert [one["id"] for one in query.done] == ["b"]


def test_who_is_told_of_a_command_and_fails_ends_the_query_and_the_command_stays_carried_out(query):
    plain = query.carrier._answer

    def fails(request):
        plain(request)
        raise ValueError("the callback")

    query.carrier._answer = fails
    query.topic[0].append(record("a"))
    query.read(9)
    with pytest.raises(ValueError, match="the callback"):
        query.run()
    query.start()
    query.run()
    assert [(one["id"], one["epoch"]) for one in query.done] == [("a", 1)]
    assert len(query.opened.read("commands")) == 1


def test_a_journal_that_cannot_be_written_ends_the_query_and_the_command_is_carried_out_by_the_next(query, monkeypatch):
    query.topic[0].append(record("a"))
    query.read(9)

    def full(_entry):
        raise StateError("The disk is full.")

    monkeypatch.setattr(query.log._journal, "append", full)
    with pytest.raises(StateError, match="full"):
        query.run()
    query.start()
    assert [one["id"] for one in query.done] == ["a"]  # the driver had made it durable
    query.run()
    assert len(query.opened.read("commands")) == 1


def test_the_journal_stays_short_and_says_the_same(query, monkeypatch):
    monkeypatch.setattr(logs, "_REWRITE_BYTES", 0)
    query.start()
    for number in range(60):
        query.topic[0].append(b'{"id": "s%d", "do": "status"}' % number)
    query.read(99)
    query.run()
    for id_ in list(query.log.pending.done):
        query.log.obey(query.log.pending.sent(id_))
    query.start()
    assert len(read_journal(query.folder / "rescale" / "control.log")) == 2
    assert query.log.pending.positions == {0: 60}


def test_a_damaged_journal_is_refused_with_its_name(query):
    query.close()
    path = query.folder / "rescale" / "control.log"
    path.write_bytes(path.read_bytes() + b"00000000 {}\n")
    with pytest.raises(UsageError, match=r"The journal .*control\.log is damaged in line"):
        query.start()


def test_a_checkpoint_that_has_lost_its_control_journal_is_refused(query):
    query.close()
    (query.folder / "rescale" / "control.log").unlink()
    with pytest.raises(UsageError, match=r"The file .*control\.log is missing"):
        query.start()


def test_a_journal_with_an_entry_of_another_kind_is_refused(query):
    query.log._journal.append({"bound": {"in": {"0": 1}}, "id": "nobody"})
    with pytest.raises(UsageError, match=r"The control journal .*control\.log does not fit together"):
        query.start()


@pytest.mark.lengthy
def test_a_time_far_ahead_and_a_broker_that_is_away_have_no_place():
    finder = TimeFinder("127.0.0.1:1", {})
    assert finder.find(1 << 50, {"in": {0: 0}}) is None
    assert finder.find(0, {"in": {0: 0}}) is None
    assert finder.find(0, {"in": {0: 0}}) is None
    finder.close()


@pytest.mark.parametrize("bad", [{"query": ""}, {"topic": ""}, {"bootstrap": ""}])
def test_a_control_topic_needs_all_its_names(bad):
    with pytest.raises(UsageError, match="needs a name"):
        ControlTopic(**{"bootstrap": "b:1", "topic": "t", "query": "q", **bad})


@pytest.mark.parametrize("options", [{"no.such.setting": "1"}, {"security.protocol": "carrier pigeon"}])
def test_settings_that_make_no_client_are_refused_before_a_query_starts(options):
    with pytest.raises(UsageError, match="These are no settings for a broker: "):
        ControlTopic("b:1", "t", "q", options=options)

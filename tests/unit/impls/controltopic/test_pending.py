"""Pending commands of a control topic: conditions, the order of what an epoch reaches, repeats, refusals, notes."""

import json

import pytest
from controlled import record

from impls.controltopic.pending import AppendEntry, PendingCommands, SendAnswer, command_id
from impls.errors import StateError


class Book:
    """Pending commands with the journal it would have."""

    def __init__(self, journal=(), answers=("answers", "mine")):
        self.pending, self.journal, self.at = PendingCommands("orders", answers, 3), [], 0
        self.obey(AppendEntry(entry) for entry in journal)

    def obey(self, told):
        answers = []
        for one in told:
            if isinstance(one, AppendEntry):
                self.journal.append(json.loads(json.dumps(one.entry)))
                self.pending.apply(self.journal[-1])
            else:
                answers.append(one)
        return answers

    def read(self, value, next_epoch=1, part=0):
        self.at += 1
        return self.obey(self.pending.read(value, (part, self.at - 1), next_epoch))

    def carry(self, epoch, begin):
        """Carries out what an epoch reaches, and returns the ids."""
        ids = []
        for one in self.pending.reached(begin):
            self.obey(self.pending.carried(one, epoch, {"id": command_id(one.command.id)}))
            ids.append(one.command.id)
        return ids


def at(*offsets):
    return {"in": dict(enumerate(offsets))}


def held_from(*offsets, **more):
    return {"from": {"offsets": {"in": {str(p): n for p, n in enumerate(offsets)}}}, **more}


def test_a_command_without_a_condition_holds_from_the_next_epoch():
    book = Book()
    assert book.read(record("a")) == []
    assert book.carry(7, None) == ["a"]
    assert book.carry(8, None) == []
    (answer,) = book.pending.unsent()
    assert answer.value == {
        "id": "a", "query": "orders", "outcome": "carried out", "epoch": 7, "number": 1, "answer": {"id": "control/a"},
    }  # fmt: skip
    assert (answer.topic, answer.key) == ("answers", "a/orders")
    assert book.obey(book.pending.sent("a")) == []
    assert book.pending.unsent() == []


def test_a_condition_is_reached_in_every_partition_or_not_at_all():
    book = Book()
    (told,) = book.read(record("a", **held_from(5, 5)))
    assert told.value["outcome"] == "waiting"
    for begin in (None, {}, at(9, 4), at(4, 9), at(9)):
        assert book.carry(1, begin) == []
    assert book.carry(2, at(5, 5)) == ["a"]


def test_a_time_has_no_place_until_the_input_has_it_and_keeps_that_after_a_crash():
    book = Book()
    book.read(record("a", **{"from": {"time": 1000}}))
    book.read(record("b", **{"from": {"time": "1970-01-01T01:00:01+01:00"}}))
    assert book.pending.due() == [1000]
    assert book.carry(1, at(9, 9)) == []
    book.obey(book.pending.bounded(1000, at(3, 4)))
    assert book.pending.due() == []
    again = Book(book.journal)
    assert again.pending.due() == []
    assert again.carry(2, at(3, 3)) == []
    assert again.carry(3, at(3, 4)) == ["a", "b"]


def test_a_later_command_overtakes_one_whose_condition_is_not_reached():
    book = Book()
    book.read(record("late", **held_from(50)))
    book.read(record("early", **held_from(20)))
    book.read(record("now"))
    assert book.carry(1, at(10)) == ["now"]
    assert book.carry(2, at(30)) == ["early"]
    assert book.carry(3, at(50)) == ["late"]
    assert [book.pending.done[id_]["number"] for id_ in ("now", "early", "late")] == [1, 2, 3]


def test_what_one_epoch_reaches_goes_by_place_then_time_then_the_topics_order():
    book = Book()
    book.read(record("now"))
    book.read(record("second", **held_from(20, 7)))
    book.read(record("first", **held_from(20, 6)))
    for id_, time_ms in (("later", 2000), ("sooner", 1000)):
        book.read(record(id_, **{"from": {"time": time_ms}}))
        book.obey(book.pending.bounded(time_ms, at(20, 8)))
    book.read(record("same", **held_from(20, 7)), part=1)
    assert book.carry(1, at(30, 30)) == ["first", "second", "same", "sooner", "later", "now"]


def test_a_record_that_is_read_again_changes_nothing_and_a_repeat_gets_the_same_answer():
    book = Book()
    book.read(record("a"))
    assert book.read(record("a")) == []
    book.carry(1, None)
    (again,) = book.read(record("a"))
    assert (again.value["outcome"], again.value["epoch"], again.id) == ("carried out", 1, "")
    assert book.carry(2, None) == []
    (other,) = book.read(record("a", workers=4))
    assert other.value["error"] == "The id a is that of another command: give each one of its own."


def test_bad_records_are_answered_when_they_have_an_id_and_counted_when_they_have_none():
    book = Book()
    for garbage in (b"", b"\xff", b"7", b"{}", b'{"id": 5}', b'{"id": ""}'):
        assert book.read(garbage) == []
    assert book.pending.garbage == 6
    assert book.read(None) == []
    (refusal,) = book.read(b'{"id": "a", "workers": 3}')
    assert refusal.value == {
        "id": "a", "query": "orders", "outcome": "refused",
        "error": "The field do says what is asked for, such as rescale.",
    }  # fmt: skip
    assert [one.key for one in book.pending.unsent()] == ["a/orders"]
    assert book.read(record("a"))[0].value["outcome"] == "refused"
    assert book.carry(1, None) == []


def test_a_command_for_other_queries_is_not_read():
    book = Book()
    assert book.read(record("a", queries=["payments"])) == []
    book.read(record("b", queries=["payments", "orders"]))
    assert list(book.pending.waiting) == ["b"]


def test_conditions_that_the_input_cannot_reach_are_refused():
    book = Book()
    book.read(record("topic", **{"from": {"offsets": {"out": {"0": 5}}}}))
    book.read(record("partition", **held_from(1, 1, 1)))
    book.read(record("good", **held_from(1, 1)))
    book.read(record("now"))
    assert book.pending.refused(None) == []
    assert [(one.command.id, said) for one, said in book.pending.refused(at(0, 0))] == [
        ("topic", "The query does not read the topic out."),
        ("partition", "The query reads no partition 2 of the topic in."),
    ]
    assert [one.command.id for one, _ in book.pending.refused({})] == ["topic", "partition", "good"]
    for one, said in book.pending.refused(at(0, 0)):
        book.obey(book.pending.carried(one, 1, None, said))
    assert book.carry(2, at(9, 9)) == ["good", "now"]
    assert book.pending.status() == {"waiting": [], "carried_out": 2, "refused": 2, "garbage": 0}


def test_a_command_that_the_driver_knows_is_not_carried_out_again():
    book = Book()
    book.read(record("a"))
    book.read(record("b"))
    book.obey(book.pending.recover({"z": 1, "a": 4}))
    assert book.carry(9, None) == ["b"]
    assert [(id_, done["epoch"], done["number"]) for id_, done in book.pending.done.items()] == [
        ("a", 4, 1),
        ("b", 9, 2),
    ]


def test_a_shorter_journal_says_the_same_and_forgets_questions_that_were_answered():
    book = Book()
    book.read(record("a"))
    for id_ in ("asked", "open"):
        book.read(json.dumps({"id": id_, "do": "status"}).encode())
    book.carry(1, at(1))
    book.obey([*book.pending.sent("a"), *book.pending.sent("asked")])
    book.read(record("b", **held_from(5)))
    book.read(record("c", **{"from": {"time": 1000}}))
    book.obey(book.pending.bounded(1000, at(7)))
    book.obey(book.pending.passed({0: 4, 1: 2}))
    short = Book(book.pending.notes())
    assert list(short.pending.done) == ["a", "open"]
    assert [one.id for one in short.pending.unsent()] == ["open"]
    assert short.pending.waiting == book.pending.waiting
    assert short.pending.positions == {0: 4, 1: 2}
    assert short.carry(5, at(9)) == ["b", "c"]
    assert short.pending.done["c"]["number"] == 5
    assert list(Book(book.pending.notes()).pending.notes()) == list(book.pending.notes())


def test_positions_only_grow_and_are_noted_when_they_do():
    book = Book()
    book.obey(book.pending.passed({0: 4}))
    assert book.pending.passed({}) == book.pending.passed({0: 3}) == book.pending.passed({0: 4}) == []
    assert book.obey(book.pending.passed({1: 1})) == []
    assert book.pending.positions == {0: 4, 1: 1}


def test_an_entry_that_is_unknown_is_refused():
    with pytest.raises(StateError, match=r"an entry \['x'\], which is unknown"):
        PendingCommands("orders", ["answers"], 3).apply({"x": 1})


def test_an_answer_goes_to_the_topic_that_the_command_names():
    book = Book()
    (told,) = book.read(record("a", answer="mine", **held_from(1)))
    assert isinstance(told, SendAnswer)
    book.carry(1, at(1))
    assert [told.topic, *(one.topic for one in book.pending.unsent())] == ["mine", "mine"]


def test_a_control_topic_that_was_made_anew_is_read_from_its_begin():
    book = Book()
    for instructions in (book.pending.of_topic("one"), book.pending.passed({0: 7, 1: 3})):
        book.obey(instructions)
    assert book.pending.of_topic("one") == book.pending.of_topic("") == []
    again = Book(book.pending.notes())
    assert (again.pending.topic_id, again.pending.positions) == ("one", {0: 7, 1: 3})
    again.obey(again.pending.of_topic("two"))
    assert (again.pending.topic_id, again.pending.positions) == ("two", {})
    assert Book(again.pending.notes()).pending.positions == {}


def test_positions_of_a_topic_whose_id_was_not_known_stay():
    book = Book([{"positions": {"0": 7}}])
    book.obey(book.pending.of_topic("one"))
    assert book.pending.positions == {0: 7}


def test_answers_go_to_topics_that_the_owner_allows():
    book = Book()
    for topic in ("mine", "answers"):
        assert book.read(record(topic, answer=topic)) == []
    (refused,) = book.read(record("elsewhere", answer="payments"))
    assert (refused.topic, refused.value["outcome"]) == ("answers", "refused")
    assert refused.value["error"].startswith("The query sends no answers to the topic payments")
    assert book.carry(7, None) == ["mine", "answers"]
    assert {answer.topic for answer in book.pending.unsent()} == {"mine", "answers"}
    later = Book(book.journal, ["answers"])
    (again,) = later.read(record("mine", answer="mine"))
    assert (again.topic, again.value["outcome"]) == ("answers", "carried out"), "what was done is not refused later"
    assert {answer.topic for answer in later.pending.unsent()} == {"answers"}, "it was allowed before, and is not now"

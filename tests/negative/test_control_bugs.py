"""Bugs planted in the control topic: drivers that die at every durable step in turn show each of them."""

import pytest
from controlled import Death, Died, Input, Query, findings, record

from impls.controltopic.commands import Waiting
from impls.controltopic.pending import PendingCommands

TIMES = [[10, 20, 30, 40, 50, 60], [10, 25, 35, 36, 37, 60]]
SENT = {
    "now": None,
    "late": {"time": 40},
    "early": {"time": 20},
    "place": {"offsets": {"in": {"0": 1, "1": 4}}},
    "again": None,
}
STEPS = ((2, (0, 0)), (1, (1, 0)), (2, (1, 2)), (9, (2, 4)), (9, (2, 0)), (9, (0, 0)), (9, (0, 0)))
"""Of each epoch the records that are read before it, and by how much the input has grown behind it."""


def id_forgotten_over_a_crash(patch):
    patch.setattr(PendingCommands, "recover", lambda *_: [])


def id_forgotten_when_the_journal_is_written_anew(patch):
    plain = PendingCommands.notes
    patch.setattr(
        PendingCommands, "notes", lambda self: (note for note in plain(self) if not {"done", "sent"} & set(note))
    )


def condition_taken_by_one_partition_alone(patch):
    plain = Waiting.reached

    def reached(self, begin):
        if self.bound is None or begin is None:
            return plain(self, begin)
        return any(begin["in"].get(part, -1) >= at for part, at in self.bound["in"].items())

    patch.setattr(Waiting, "reached", reached)


def carried_out_as_they_were_sent(patch):
    patch.setattr(Waiting, "order", property(lambda self: self.command.at))


def waiting_commands_lost_when_the_journal_is_written_anew(patch):
    plain = PendingCommands.notes
    patch.setattr(
        PendingCommands, "notes", lambda self: (note for note in plain(self) if not {"read", "bound"} & set(note))
    )


def condition_forgotten(patch):
    patch.setattr(Waiting, "reached", lambda *_: True)


def told(folder, append=0, *, behind=False):
    """What the judge finds in a query that reads five commands, one of them twice, and dies at an append."""
    topic = [[], []]
    for number, (id_, condition) in enumerate(SENT.items()):
        topic[number % 2].append(record(id_, 1 + number % 3, **({"from": condition} if condition else {})))
    repeated = topic[0][0]
    source, commanded, appends = Input(TIMES), None, 0
    with pytest.MonkeyPatch.context() as patch:
        death = Death(patch)
        query = Query(folder, "q", topic, source)
        death.at(append, behind=behind)
        for records, grown in STEPS:
            while True:
                try:
                    if query.epoch == 5 and repeated is not None:
                        topic[1], repeated = [*topic[1], repeated], None
                    query.read(records)
                    query.run()
                    break
                except Died:
                    query.start()
                    query.start()  # what the first one has left is enough for the next
                    query.epoch = query.driver.last_epoch + 1
            source.grow(grown)
        commanded, appends = death.commanded, death.appends
        bounds = {
            id_: {"in": {int(p): at for p, at in condition["offsets"]["in"].items()}}
            if "offsets" in condition
            else source.find(condition["time"], source.end)
            for id_, condition in SENT.items()
            if condition
        }
        with query:
            return findings(query.done, query.begins, bounds, SENT, commanded), appends


def everywhere(folder):
    """What is found over all places where the driver can die."""
    found, appends = told(folder / "none")
    for append in range(1, appends + 1):
        for behind in (False, True):
            found += told(folder / f"{append}-{behind}", append, behind=behind)[0]
    return found


def test_a_driver_that_dies_at_any_step_carries_each_command_out_once(tmp_path):
    assert everywhere(tmp_path) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (id_forgotten_over_a_crash, "was carried out 2 times"),
        (id_forgotten_when_the_journal_is_written_anew, "was carried out 2 times"),
        (condition_taken_by_one_partition_alone, "holds from epoch"),
        (carried_out_as_they_were_sent, "was carried out behind"),
        (waiting_commands_lost_when_the_journal_is_written_anew, "was not carried out"),
        (condition_forgotten, "holds from epoch"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(plant, words, tmp_path, monkeypatch):
    plant(monkeypatch)
    found = everywhere(tmp_path)
    assert any(words in one for one in found), found

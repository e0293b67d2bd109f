"""The checkpoint folder: bases that shorten the journals, crashes in between, and files that are damaged or missing."""

import contextlib
import json

import pytest

from impls.driver import checkpoint as checkpoints
from impls.driver.checkpoint import Checkpoint
from impls.driver.journal import Journal
from impls.errors import UsageError
from impls.operators import DenseCount, HashCount
from impls.operators.nexmark import make
from impls.protocol.eventtime import EventTime

NAMES = ("plan", "observed", "commands")
CONTROLLER = {"pending": [{"id": "c2"}]}


def filled(folder, **options):
    """A checkpoint with the plans of epochs 0 to 5, observations up to 4, and commands before 2, 5 and 5."""
    opened = Checkpoint(folder, {}, **options)
    for epoch in range(6):
        opened.plans.append({"epoch": epoch})
    for epoch in range(5):
        opened.observed.append({"epoch": epoch})
    for number, epoch in ((1, 2), (2, 5), (3, 5)):
        opened.commands.append({"id": f"c{number}", "from_epoch": epoch})
    return opened


def whole(checkpoint):
    return {name: [entry.get("id", entry.get("epoch")) for entry in checkpoint.read(name)] for name in NAMES}


@pytest.mark.parametrize("fsync", [False, True])
def test_a_base_empties_the_journals_but_for_the_plan_of_its_epoch(tmp_path, fsync):
    opened = filled(tmp_path, fsync=fsync)
    opened.rebase(4, CONTROLLER, {"epoch": 4})
    assert whole(opened) == {"plan": [4], "observed": [], "commands": []}
    opened.plans.append({"epoch": 5})
    opened.close()
    again = Checkpoint(tmp_path, {}, fsync=fsync)
    assert whole(again) == {"plan": [4, 5], "observed": [], "commands": []}
    assert (again.base.epoch, again.base.controller) == (4, CONTROLLER)
    again.close()


@pytest.mark.parametrize("steps", range(3))
def test_a_crash_between_two_steps_of_a_base_loses_and_doubles_nothing(tmp_path, monkeypatch, steps):
    """Command c2 is in the base, c1 before it, c3 came after it: as if the journal of commands was not yet emptied."""
    opened, done, rewrite = filled(tmp_path), [], Journal.rewrite

    def crash(self, entries, *, base):
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(self)
        rewrite(self, entries, base=base)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "rewrite", crash)
        with pytest.raises(KeyboardInterrupt):
            opened.rebase(4, CONTROLLER, {"epoch": 4})
    opened.close()
    again = Checkpoint(tmp_path, {})
    plans = [4] if steps == 2 else [4, 5]
    assert whole(again) == {"plan": plans, "observed": [], "commands": ["c3"]}
    again.close()


def test_a_base_is_due_after_a_number_of_epochs_or_of_bytes(tmp_path, monkeypatch):
    opened = filled(tmp_path)
    assert not opened.needs_base(checkpoints.BASE_EPOCHS - 2)
    assert opened.needs_base(checkpoints.BASE_EPOCHS - 1)
    opened.rebase(600, CONTROLLER, {"epoch": 600})
    assert not opened.needs_base(600 + checkpoints.BASE_EPOCHS - 1)
    monkeypatch.setattr(checkpoints, "BASE_BYTES", 200)
    assert not opened.needs_base(601)
    opened.observed.append({"epoch": 601, "fill": "x" * 100})
    assert opened.needs_base(601)
    opened.close()


@pytest.mark.parametrize("name", ["query.json", "plan.log", "observed.log", "commands.log", "generation", "base.json"])
def test_a_missing_file_is_named_and_nothing_is_made_in_its_place(tmp_path, name):
    opened = filled(tmp_path)
    opened.rebase(4, CONTROLLER, {"epoch": 4})
    opened.close()
    (tmp_path / "rescale" / name).unlink()
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"{name} is missing: restore it from a copy, or start with a new"):
            Checkpoint(tmp_path, {})
    assert not (tmp_path / "rescale" / name).exists()


def test_a_base_older_than_the_journals_is_refused(tmp_path):
    opened = filled(tmp_path)
    opened.rebase(2, CONTROLLER, {"epoch": 2})
    older = (tmp_path / "rescale" / "base.json").read_bytes()
    opened.rebase(4, CONTROLLER, {"epoch": 4})
    opened.close()
    (tmp_path / "rescale" / "base.json").write_bytes(older)
    with pytest.raises(UsageError, match=r"base\.json is of epoch 2, older than the journals' 4: restore it"):
        Checkpoint(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("generation", "two"), ("generation", ""), ("base.json", ""), ("base.json", "{"), ("base.json", "[]"),
        ("base.json", '{"format": 1}'), ("plan.log", ""), ("observed.log", "{}\n"), ("query.json", ""),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, name, text):
    opened = filled(tmp_path)
    opened.rebase(4, CONTROLLER, {"epoch": 4})
    opened.close()
    (tmp_path / "rescale" / name).write_text(text)
    with pytest.raises(UsageError, match=rf"{name} .*(damaged|lost).*: restore it .*"):
        Checkpoint(tmp_path, {})


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("format", 9, "has format 9"), ("query", "q", "checksum"), ("epoch", 3, "checksum"), ("crc32", 1, "checksum")],
)
def test_a_changed_base_is_refused(tmp_path, field, value, said):
    opened = filled(tmp_path)
    opened.rebase(4, CONTROLLER, {"epoch": 4})
    opened.close()
    path = tmp_path / "rescale" / "base.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(UsageError, match=rf"base\.json .*{said}"):
        Checkpoint(tmp_path, {})


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Checkpoint(tmp_path / "file", {})


def refused(folder, operator):
    with pytest.raises(UsageError) as caught:
        Checkpoint(folder, {"bins": 16}, operator=operator)
    return str(caught.value)


@pytest.mark.parametrize(
    ("made", "other", "said"),
    [
        (DenseCount(4000), DenseCount(2000), "operator.keys=4000, not 2000"),
        (DenseCount(4000), HashCount(), "operator=DenseCount, not HashCount"),
        (make("q4"), make("q6"), "operator=Q4, not Q6"),
    ],
)
def test_an_operator_whose_state_lies_elsewhere_is_refused_in_one_sentence(tmp_path, made, other, said):
    Checkpoint(tmp_path, {"bins": 16}, operator=made).close()
    expected = f"The checkpoint {tmp_path} was made with {said}: use the same setting or another checkpoint."
    assert refused(tmp_path, other) == expected
    Checkpoint(tmp_path, {"bins": 16}, operator=made).close()


@pytest.mark.parametrize(("name", "value"), [("dialect", "flink-sql"), ("event_time", "at")])
def test_a_query_of_another_dialect_or_event_time_is_refused(tmp_path, monkeypatch, name, value):
    query = make("q5")
    before = query.identity()[name]
    Checkpoint(tmp_path, {"bins": 16}, operator=query).close()
    if name == "dialect":
        monkeypatch.setattr(type(query), "dialect", value)
    else:
        query.event_time = EventTime(value)
    assert f"operator.{name}={before}, not {value}:" in refused(tmp_path, query)


@pytest.mark.parametrize(
    ("made", "other"),
    [
        (DenseCount(4000), DenseCount(4000, cost_us=5, cost="compute")),
        (HashCount(preload=1000, value_bytes=100), HashCount(preload=10, value_bytes=7, cost_us=5)),
        (make("q4", partitions=2, disorder=5), make("q4", partitions=3, disorder=9)),
    ],
)
def test_what_does_not_place_state_may_change(tmp_path, made, other):
    Checkpoint(tmp_path, {"bins": 16}, operator=made).close()
    Checkpoint(tmp_path, {"bins": 16}, operator=other).close()


@pytest.mark.parametrize(
    ("version", "remedy"), [(3, True), (4, True), (6, False), (7, False), (9, False), ("8", False), (None, False)]
)
def test_a_checkpoint_of_another_format_is_refused_and_left_as_it_is(tmp_path, version, remedy):
    Checkpoint(tmp_path, {"bins": 16}).close()
    path = tmp_path / "rescale" / "query.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": version}))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"has format {version}; this version reads 8") as caught:
        Checkpoint(tmp_path, {"bins": 16})
    assert ("finish the query with rescale-bench 0.1.0" in str(caught.value)) is remedy
    assert path.read_bytes() == before


def test_a_checkpoint_keeps_to_its_mode(tmp_path):
    Checkpoint(tmp_path, {"bins": 8, "mode": "micro-batch"}).close()
    with pytest.raises(UsageError, match="made with mode=micro-batch, not real-time"):
        Checkpoint(tmp_path, {"bins": 8, "mode": "real-time"})


def test_a_log_of_its_own_outlives_the_opening_and_is_refused_when_damaged(tmp_path):
    with contextlib.closing(Checkpoint(tmp_path, {})) as opened:
        log, entries = opened.log("autoscale")
        assert entries == []
        log.append({"wanted": 3})
        log.close()
    with contextlib.closing(Checkpoint(tmp_path, {})) as opened:
        log, entries = opened.log("autoscale")
        log.close()
        assert entries == [{"wanted": 3}]
        raw = log.path.read_bytes()
        log.path.write_bytes(raw.replace(b'"wanted":3', b'"wanted":4'))
        with pytest.raises(UsageError, match="damaged in line 2"):
            opened.log("autoscale")

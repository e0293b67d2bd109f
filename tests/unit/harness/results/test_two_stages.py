"""A run of two stages: a rescale is one migration, until both stages have ended it, and what both have moved."""

import json

import pytest

from harness.results.runfiles import RunFiles

S = 1_000_000


def event(kind, at_s, name, **more):
    return {"kind": kind, "at_us": round(at_s * S), "id": name, **more}


def stage(folder, name, begins, lengths, *, bins, end=True, label="out"):
    """Writes what a stage leaves of rescales that begin at some times, each of which lasts two epochs."""
    epochs, events = [], []
    for number, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        one, first = f"{name}{number}", 2 * number
        events.append(event("command", begin, one, label=label, moves={"bins": bins, "size": 10 * bins}))
        events.append(event("migration_begin", begin, one, epoch=first, bins=bins))
        for at in (0, 1):
            low, high = (begin + (at + part) * length / 2 for part in (0, 1))
            epochs.append({
                "epoch": first + at, "begin_us": round(low * S), "end_us": round(high * S), "moved_bins": bins,
                "moved_bytes": 10 * bins, "longest_pull_ms": length, "records": 1, "ms": {"total": 1.0},
                "lmdb_bytes": 100 * bins,
            })  # fmt: skip
        if end or number < len(begins) - 1:
            events.append(event("migration_end", begin + length, one, epoch=first + 1))
    folder.mkdir(exist_ok=True)
    for file, lines in (("epochs", epochs), ("events", events)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_rescale_lasts_until_both_stages_have_ended_it_and_moves_what_both_move(tmp_path):
    stage(tmp_path, "a", (10, 30), (2, 6), bins=3)
    stage(tmp_path / "second", "b", (10.01, 30.01), (4, 1), bins=1)
    files = RunFiles(tmp_path)
    assert [(one.id, one.begin_us / S, one.end_us / S) for one in files.migrations] == [
        ("a0", 10, 14.01),
        ("a1", 30, 36),
    ]
    assert [one.moves for one in files.migrations] == [{"bins": 4, "size": 40}] * 2
    first, then = files.moved(0), files.moved(1)
    assert (first.bins, first.size, first.longest_pull_ms) == (8, 80, 4)
    assert (first.duration_s, then.duration_s) == (pytest.approx(4.01), pytest.approx(6))
    assert (files.lmdb_bytes, files.second.lmdb_bytes) == (300, 100)


@pytest.mark.parametrize("begins", [(10, 30), (9.99, 29.99)])
def test_a_migration_of_the_second_stage_belongs_to_the_command_nearest_in_time(tmp_path, begins):
    stage(tmp_path, "a", (10, 30), (2, 2), bins=1)
    stage(tmp_path / "second", "b", begins, (3, 5), bins=1)
    ends = [one.end_us / S for one in RunFiles(tmp_path).migrations]
    assert ends == pytest.approx([begins[0] + 3, begins[1] + 5])


def test_what_the_second_stage_has_not_ended_has_no_end(tmp_path):
    stage(tmp_path, "a", (10, 30), (2, 2), bins=1)
    stage(tmp_path / "second", "b", (10, 30), (2, 2), bins=1, end=False)
    assert [one.end_us is None for one in RunFiles(tmp_path).migrations] == [False, True]


def test_a_command_that_the_second_stage_got_later_belongs_to_one_of_the_first(tmp_path):
    stage(tmp_path, "a", (10,), (2,), bins=1)
    stage(tmp_path / "second", "b", (50,), (3,), bins=1, label="as the first stage")
    assert [one.end_us / S for one in RunFiles(tmp_path).migrations] == [53]


def test_a_run_of_one_stage_has_its_own_migrations(tmp_path):
    stage(tmp_path, "a", (10,), (2,), bins=1)
    files = RunFiles(tmp_path)
    assert files.second is None
    assert [one.end_us / S for one in files.migrations] == [12]
    assert files.moved(0).bins == 2

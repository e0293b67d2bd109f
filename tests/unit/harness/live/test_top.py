"""`./inv top`: what it shows of a query's answer, on wide and narrow terminals, and how it ends."""

import json
from dataclasses import replace

import numpy as np
import pytest
from clocks import set_clock
from rich.console import Console
from telling import epoch_record

from harness.live import top as live_top
from harness.live.top import frame_of, top
from impls.driver.control import ControlServer
from impls.driver.metrics import Metrics
from impls.protocol.events import MigrationBegun, MigrationDone

STATUS = {
    "epoch": 7, "generation": 2, "workers": 2, "bins": [6, 2], "misplaced": 6, "queued": 12, "migrating": True,
    "versions": {"0": 8}, "running": True,
}  # fmt: skip


@pytest.fixture
def metrics():
    found = Metrics()
    found.take(replace(epoch_record(7, np.arange(1, 101)), events=(MigrationBegun("a", "rescale to 2 workers", 7, 8),)))
    return found


def _shown(answer, width=100):
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(frame_of(answer, width))
    return captured.get()


def _answer(metrics, **status):
    return {"query": "rescale-12345678", "status": STATUS | status, "metrics": metrics.now()}


def test_it_shows_the_query_its_migration_its_workers_and_what_happened(metrics):
    text = _shown(_answer(metrics))
    for part in (
        "rescale-12345678  running  epoch 7 (210 ms)  generation 2  2 workers  8 bins",
        "100 records", "latency p50 50.0  p99 98.9  max 100.0 ms", "queue 12 records  state 0.0 MiB",
        "migration [#####...............] 2 of 8 bins", "rescale to 2 workers", "begins with epoch 7: 8 bins to move.",
    ):  # fmt: skip
        assert part in text, part
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert [(row[0], row[1]) for row in rows] == [("0", "6"), ("1", "2")]
    assert "host" not in text, "there is one host"


def test_it_shows_what_only_some_queries_have(metrics):
    autoscale = {"policy": "ds2", "min": 1, "max": 4, "last": None}
    text = _shown(_answer(metrics, watermark=None, settled=True, versions={"0": 4, "1": 4}, autoscale=autoscale))
    assert "watermark none yet  settled" in text
    assert "versions 0: 4 bins, 1: 4 bins" in text
    assert "autoscale ds2, 1 to 4 workers: no decision yet" in text


def test_the_last_migration_is_shown_when_none_runs(metrics):
    metrics.take(replace(epoch_record(8, [1]), events=(MigrationDone("a", 8),)))
    assert "last migration: rescale to 2 workers: done, 4 bins" in _shown(_answer(metrics, migrating=False))
    assert "no migration so far" in _shown(_answer(Metrics(), migrating=False))
    assert "migration under way: 6 bins left" in _shown(_answer(Metrics())), "begun before this driver"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_is_wider_than_the_terminal_and_workers_stay_legible(metrics, width):
    text = _shown(_answer(metrics), width)
    assert max(map(len, text.splitlines())) <= width
    assert any(line.split()[:2] == ["0", "6"] for line in text.splitlines())


@pytest.fixture
def running(tmp_path, metrics):
    """The checkpoint of a query that answers, and what it was asked; it ends behind the third request."""
    own, asked = tmp_path / "rescale", []
    own.mkdir()

    def handle(request):
        asked.append(request)
        if len(asked) > 3:
            raise live_top.UsageError("The query has ended.")
        return _answer(metrics)

    server = ControlServer(own, handle)
    yield tmp_path, asked
    server.close()


def test_once_prints_one_picture(running, capsys):
    checkpoint, asked = running
    assert top(str(checkpoint), once=True, as_json=False, interval=1.0) == 0
    assert asked == [{"do": "watch"}]
    assert capsys.readouterr().out.count("rescale-12345678") == 1


def test_json_prints_a_line_for_each_answer_until_the_query_ends(running, capsys):
    checkpoint, _ = running
    assert top(str(checkpoint), once=False, as_json=True, interval=0.01) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"]["epoch"] for line in lines] == [7, 7, 7]


def test_ctrl_c_ends_it_without_a_word(running, capsys, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    set_clock(monkeypatch, "harness.live.top", sleep=interrupt)
    assert top(str(running[0]), once=False, as_json=False, interval=1.0) == 130
    assert capsys.readouterr().err == ""


def test_without_a_query_it_is_one_sentence(tmp_path, capsys):
    assert top(str(tmp_path), once=True, as_json=False, interval=1.0) == 2
    assert capsys.readouterr().err == f"No running query answers on the checkpoint {tmp_path}.\n"

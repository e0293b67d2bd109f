"""What `./inv conformance` does with what its tours come to; the tours themselves are stood in for."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.suites.conformance import run
from harness.suites.conformance.judge import Row


@pytest.fixture
def suite(monkeypatch, tmp_path):
    """suite(bad=, stop=) runs two queries and returns (exit code, tours carried out)."""
    services = SimpleNamespace(spark=None, broker=SimpleNamespace(bootstrap=""), redis_url="")
    monkeypatch.setattr(run, "bring_up", lambda *_, **__: nullcontext(services))
    monkeypatch.setattr(run, "use_java", lambda: None)
    monkeypatch.setattr(run, "ensure_jars", lambda: None)

    def go(bad: str = "", stop: str = "", **options) -> tuple[int, list[str]]:
        carried_out = []

        def tour_rows(tour, _where, _place):
            if str(tour) == stop:
                raise KeyboardInterrupt
            carried_out.append(str(tour))
            verdict = "invalid" if str(tour) == bad else "valid"
            of = tour.mechanism, tour.operator
            return [Row(*of, scenario, tour.keys, verdict, 1, 1, 0, 0, 0) for scenario in tour.scenarios]

        monkeypatch.setattr(run, "run_tour", tour_rows)
        code = run.run_conformance(mechanism="meces", operator="hash", output=str(tmp_path), **options)
        return code, carried_out

    return go


ALL = ["meces/hash/uniform", "meces/hash/zipf"]


@pytest.mark.capability
def test_all_valid_is_exit_code_0_and_the_last_line_is_the_folder(suite, tmp_path, capsys):
    assert suite() == (0, ALL)
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "14 of 14 cases are valid"
    assert said[-1] == str(next(tmp_path.iterdir()))


def test_one_that_is_not_valid_is_exit_code_1(suite, capsys):
    assert suite(bad=ALL[1]) == (1, ALL)
    assert "7 of 14 cases are valid" in capsys.readouterr().out


def test_a_suite_that_was_cut_off_is_gone_on_with(suite, capsys):
    assert suite(stop=ALL[1]) == (130, ALL[:1])
    assert suite() == (0, ALL[1:])
    assert "14 of 14 cases are valid" in capsys.readouterr().out


def test_force_begins_anew(suite):
    assert suite(stop=ALL[1]) == (130, ALL[:1])
    assert suite(force=True) == (0, ALL)


def test_what_was_begun_on_one_host_is_not_gone_on_with_on_a_cluster(suite, monkeypatch):
    asked = []

    def started(hosts, **_more):
        asked.append(hosts)
        return nullcontext(SimpleNamespace(master="spark://none:1", driver="127.0.0.1", state_dir=Path("state")))

    monkeypatch.setattr(run, "cluster_of", started)
    assert suite(stop=ALL[1]) == (130, ALL[:1])
    assert suite(cluster=2) == (0, ALL)
    assert asked == [2]


def test_an_unknown_name_is_one_sentence_and_exit_code_2(suite, capsys):
    assert suite(scenario="growing") == (2, [])
    assert capsys.readouterr().err.count("\n") == 1

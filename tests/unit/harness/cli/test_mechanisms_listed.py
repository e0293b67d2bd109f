"""`./inv mechanisms`: all there is, each line readable alone, as wide as the terminal."""

import io

import pytest
from rich.console import Console

from harness.cli.mechanisms import list_mechanisms, mechanism_tables
from impls import catalog


def printed(columns: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=columns, highlight=False)
    for table in mechanism_tables():
        console.print(table)
    return out.getvalue()


def test_mechanisms_and_baselines_are_told_apart():
    mechanisms, baselines, engines = mechanism_tables()
    assert [str(name) for name in mechanisms.columns[0].cells] == catalog.names()
    assert (
        [str(name) for name in baselines.columns[0].cells]
        == catalog.natives()
        == ["native-real-time", "native-repartition", "native-restart"]
    )
    assert (
        [str(name) for name in engines.columns[0].cells]
        == catalog.engines()
        == [
            "flink-adaptive",
            "flink-savepoint",
            "kafka-floor",
            "kafka-streams-classic",
            "kafka-streams-instance",
            "kafka-streams-streams",
        ]
    )
    assert str(baselines.title).startswith("Baselines")


def test_no_line_leans_on_another():
    said = [str(text) for table in mechanism_tables() for text in table.columns[1].cells]
    assert len(said) == len(set(said)) == len(catalog.every())
    assert all(text.endswith(".") and not text.lower().startswith("the same") for text in said)


@pytest.mark.parametrize("columns", [80, 100, 120, 250])
def test_nothing_is_cut_off_and_options_stand_with_their_defaults(columns):
    text = printed(columns)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= columns
    for name in catalog.every():
        assert f"\n{name} " in text
        for option, default in catalog.options(name).items():
            assert f"{option}={default if default != '' else '(none)'}" in text


def test_a_wide_terminal_is_used():
    lines = printed(250).splitlines()
    said = [str(text) for table in mechanism_tables() for text in table.columns[1].cells]
    assert all(any(text in line for line in lines) for text in said)
    assert len(printed(80).splitlines()) > len(lines)


@pytest.mark.capability
def test_the_task_prints_all_tables(capsys):
    assert list_mechanisms() == 0
    out = capsys.readouterr().out
    assert all(name in out for name in catalog.every())

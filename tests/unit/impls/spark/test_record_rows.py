"""Which rows a record becomes is the same at each start, where records come again by their rows' numbers."""

from types import SimpleNamespace
from typing import Any

import pytest

from impls.errors import UsageError
from impls.spark.identity import Identified, rows_of
from impls.spark.input import QueryInput
from impls.spark.source import InputLog
from impls.spark.topics import Topics


class Scala(list[Any]):
    """A sequence of Scala's."""

    def size(self) -> int:
        return len(self)

    def apply(self, place: int) -> Any:
        return self[place]


def named(kind: str, **more: Any) -> Any:
    return SimpleNamespace(getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind), **more)


def node(kind: str, *children: Any, sql: str = "", streaming: bool = True) -> Any:
    none = SimpleNamespace(toSeq=Scala)
    expressions = Scala([named("Column", sql=lambda: sql, references=lambda: none)] if sql else [])
    return named(
        kind, children=lambda: Scala(children), expressions=lambda: expressions, projectList=lambda: expressions,
        isStreaming=lambda: streaming, output=Scala,
    )  # fmt: skip


def filtered(child: Any, sql: str) -> Any:
    return node("Filter", child, sql=sql)


def exploded(child: Any) -> Any:
    return node("Generate", child, sql="explode(words)")


LEAF = node("StreamingRelationV2")
PLANS = {
    "one row": (filtered(LEAF, "a > 1"), ()),
    "whole records": (exploded(filtered(LEAF, "a > 1")), ("Generate: explode(words)",)),
    "rows": (
        node("Project", filtered(exploded(LEAF), "f(word#12L)#7 > 'x'"), sql="word"),
        ("Generate: explode(words)", "Filter: f(word) > 'x'"),
    ),
    "one of two": (
        node("Union", filtered(LEAF, "a > 1"), filtered(exploded(LEAF), "b")),
        ("Generate: explode(words)", "Filter: b"),
    ),
    "a literal": (
        filtered(exploded(LEAF), "f(word#12L)#7 = 'it\\'s #1'"),
        ("Generate: explode(words)", "Filter: f(word) = 'it\\'s #1'"),
    ),
    "a function": (node("MapInPandas", LEAF, sql="f(a#1)#2"), ("MapInPandas: f(a)",)),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "rows"), PLANS.values(), ids=list(PLANS))
def test_what_makes_rows_and_filters_behind_it_decide_their_numbers(plan, rows):
    execution: Any = SimpleNamespace(analyzed=lambda: plan)
    df: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))
    assert rows_of(df) == rows


@pytest.fixture
def start(tmp_path):
    """start(rows) starts a query on the checkpoint; the frame stands for nothing that this looks at."""

    def started(*rows: str) -> None:
        frame: Any = None
        source = Identified(frame, carried=True, several=bool(rows), rows=rows)
        noted = Topics.noted(tmp_path)
        QueryInput(frame, source, Topics(), (), noted, None, tmp_path / "spark").keep(tmp_path, fsync=False)

    (tmp_path / "spark").mkdir()
    return started


def test_a_start_at_which_records_become_other_rows_is_refused_once_some_were_read(start, tmp_path):
    start("explode", "a")
    start("explode", "b")
    InputLog(str(tmp_path / "spark"), Topics()).keep({0: 7})
    start("explode", "b")
    for other in (("explode", "a"), ("explode",), ()):
        with pytest.raises(UsageError, match="The input makes other rows of a record than at the last start"):
            start(*other)
    start("explode", "b")


def test_a_start_is_refused_where_only_sparks_offsets_say_that_records_were_read(start, tmp_path):
    start("explode", "a")
    (tmp_path / "spark" / "offsets").mkdir()
    (tmp_path / "spark" / "offsets" / "0").write_text('v1\n{}\n{"in":{"0":7}}')
    with pytest.raises(UsageError, match="The input makes other rows of a record than at the last start"):
        start("explode", "b")


def test_a_damaged_note_is_one_sentence(start, tmp_path):
    start("explode", "a")
    (tmp_path / "rows.json").write_text("[")
    with pytest.raises(UsageError, match=r"rows\.json is damaged: "):
        start("explode", "a")

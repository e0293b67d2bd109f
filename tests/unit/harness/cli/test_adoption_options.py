"""What `./inv adopt` reads of its options and says at its end."""

import pytest

from harness.cli.adoption import aggregates_of
from harness.run.adopt import in_words, run_adopt
from impls.adoption.adopting import Adopted
from impls.errors import UsageError


def test_aggregates_are_read_by_the_names_of_their_results():
    found = aggregates_of("count(*) AS n, sum(amount) total,avg( `price` ) as `the mean`")
    assert found == {"n": "count(*)", "total": "sum(amount)", "the mean": "avg( `price` )"}


@pytest.mark.parametrize(("text", "why"), [("count(*)", "has no name"), ("min(a) x, max(a) x", "have the name 'x'")])
def test_an_aggregate_without_a_name_of_its_own_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        aggregates_of(text)


@pytest.mark.parametrize(("processor", "aggregates"), [("", None), ("Sessions", {"n": "count(*)"})])
def test_aggregates_or_a_processor_are_named_and_not_both(processor, aggregates, capsys):
    assert run_adopt({"processor": processor}, aggregates) == 2
    assert "or the class of its processor" in capsys.readouterr().err


def test_what_was_adopted_is_said_with_where_the_query_goes_on():
    adopted = Adopted(7, planned=True, entries=1200, state_bytes=2_000_000, file_bytes=3_000_000, seconds=4.0)
    assert in_words(adopted) == (
        "1,200 entries of state (2.0 MB, 3.0 MB in snapshots) were adopted in 4.0 s. The query goes on behind batch 7 "
        "with epoch 8. Batch 8 was planned and not committed: its records are processed anew."
    )

"""Which records an operator has failed on, as an exception notes them."""

import lmdb
import numpy as np
import pyarrow as pa
import pytest

from impls.operators import EventTime, KeyedProcess, Map
from impls.operators.base import Input
from impls.operators.blame import blamed, raise_store_error
from impls.operators.pipeline import pipeline_of
from impls.store.environment import Store
from impls.store.state import BinState

TURNS = 20


ODD = ValueError("odd")


class Picky(KeyedProcess):
    """Does not take odd times, and says so by one object again and again."""

    event_time = EventTime("at")
    columns = ("at",)

    def record(self, record, one):
        one.set_value(record["at"])
        if record["at"] % 2:
            raise ODD


def turn(number):
    """Two good records, and one between them that fails."""
    kinds = {"bin": pa.int32(), "partition": pa.int64(), "offset": pa.int64(), "at": pa.int64(), "key": pa.binary()}
    rows = [(0, 3, 10 * number + at, at, b"k") for at in (0, 1, 2)]
    columns = zip(*rows, strict=True)
    table = pa.table({name: pa.array(c, kind) for (name, kind), c in zip(kinds.items(), columns, strict=True)})
    return Input(np.ones(1, bool), None, table)


def refuse(row):
    if row["at"] % 2:
        raise ODD
    return {}


@pytest.mark.parametrize("operator", [Picky(), pipeline_of([Map("odd", refuse, ("at",))], Picky())])
@pytest.mark.parametrize(("careful", "failed"), [(False, 1), (True, TURNS)])
def test_a_careful_operator_tries_the_records_of_all_turns(tmp_path, operator, careful, failed):
    turns = [turn(number) for number in range(TURNS)]
    with Store.open(tmp_path / "state") as store, store.begin() as txn, pytest.raises(ValueError, match="odd") as found:
        operator.run(BinState(txn, 1, careful=careful), turns)
    assert blamed(found.value).places == tuple((3, 10 * number + 1, 0, 0) for number in range(failed))


def test_code_without_a_name_may_have_an_lmdb_of_its_own(tmp_path):
    source = "with lmdb.open(folder) as own, own.begin() as txn: txn.get(b'')"
    with pytest.raises(lmdb.BadValsizeError) as found:
        exec(source, {"lmdb": lmdb, "folder": str(tmp_path / "own")})
    raise_store_error(found.value)

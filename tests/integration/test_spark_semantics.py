"""Columns, keys and aggregates mean what they mean to Spark, whatever their names, types and the session's settings."""

import json
import os
from decimal import Decimal

import pytest
from pipeline import await_true
from pyspark.sql import functions as F  # noqa: N812

import impls
from impls.errors import UsageError
from impls.operators import StatefulMap
from impls.processor.keys import KeyCodec, key_sql
from impls.spark.columns import prepared

pytestmark = pytest.mark.spark


class Columns(StatefulMap):
    """Reads columns whose names Spark must have quoted."""

    columns = ("A.B", "c`d")

    def update(self, key, record, state):
        return state, None


@pytest.fixture
def session(spark):
    """A session of the test's own, whose settings nobody else sees."""
    return spark.newSession()


def rows_of(session, key="`User` string"):
    ddl = f"{key}, `a.b` int, `c``d` int, partition int, offset long"
    return session.createDataFrame([], ddl)


def test_columns_are_found_whatever_their_case_and_with_any_name(session):
    (row,) = prepared(
        session.createDataFrame([("ann", 1, 2, 0, 5)], rows_of(session).schema), "USER", Columns(), 16, None
    ).collect()
    assert (bytes(row.key), row["A.B"], row["c`d"], row.offset) == (b"ann", 1, 2, 5)


def test_upper_and_lower_case_differ_where_the_session_says_so(session):
    session.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(UsageError, match="no column 'USER'"):
        prepared(rows_of(session), "USER", Columns(), 16, None)
    both = session.createDataFrame([], "user string, USER string, partition int, offset long")
    session.conf.set("spark.sql.caseSensitive", "false")
    with pytest.raises(UsageError, match="2 columns that 'User' means"):
        prepared(both, "User", Columns(), 16, None)


@pytest.mark.parametrize(
    "kind", ["double", "decimal(10,2)", "boolean", "date", "timestamp", "struct<a: int>", "array<int>", "map<int,int>"]
)
def test_a_key_that_is_no_number_and_no_bytes_is_refused_in_a_sentence(session, kind):
    with pytest.raises(UsageError, match=r"The key column 'user' is of type .*: cast the column"):
        prepared(rows_of(session, f"user {kind}"), "user", Columns(), 16, None)


def test_a_key_of_which_different_bytes_are_equal_is_refused(session):
    with pytest.raises(UsageError, match="under whose collation different bytes are equal"):
        prepared(rows_of(session, "user string collate UTF8_LCASE"), "user", Columns(), 16, None)
    with pytest.raises(UsageError, match="under whose collation different bytes are equal"):
        key_sql(rows_of(session, "user string collate UTF8_LCASE").schema[:1], ["`user`"])


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_decimal_key_has_the_same_bytes_under_either_ansi_setting(session, ansi):
    """Without ANSI Spark's own text of a small decimal has an exponent."""
    session.conf.set("spark.sql.ansi.enabled", ansi)
    kinds = ["decimal(38,18)", "decimal(20,10)", "decimal(9,7)", "decimal(38,38)", "decimal(10,2)"]
    values = ["0", "1E-7", "-1.5E-7", "1E-10", "-9E-18", "0.123", "-0.5", "0.00001", "0.0000001"]
    frame = session.createDataFrame([(text,) for text in values], "text string").selectExpr(
        *[f"cast(text as {kind}) as c{n}" for n, kind in enumerate(kinds)]
    )
    sql = key_sql(frame.schema, [f"`{name}`" for name in frame.columns])
    codec = KeyCodec(frame.schema)
    for row in frame.selectExpr("*", f"{sql} as bytes").collect():
        assert codec.encode(row[:-1]) == bytes(row.bytes), row


VALUES = {  # by user, the amounts in a file each; a sum of decimals beyond 38 digits stays null
    "fits": ["1.5", "-2.25", None],
    "none": [None, None, None],
    "over": ["5" + "0" * 27, "6" + "0" * 27, "1"],
}
WHOLES = {"fits": [1, 2, None], "none": [None, None, None], "over": [(1 << 63) - 1, 1, 5]}


SHORT = [f"cast(n % 97 / 8 as decimal({digits},3)) as m{digits}" for digits in (8, 10, 12)]


def written(folder):
    folder.mkdir()
    for file in range(3):
        rows = [{"User": user, "a.m": VALUES[user][file], "n": WHOLES[user][file]} for user in VALUES]
        path = folder / f"{file}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (file, file))
    return str(folder)


def amounts(reader, folder):
    read = reader.schema("User string, `a.m` string, n long").json(folder)
    return read.selectExpr("User", "cast(`a.m` as decimal(38,10)) as `a.m`", "n", *SHORT)


def test_aggregates_are_those_of_spark_without_ansi(session, tmp_path):
    """Names in another case and with a dot, sums of nulls, sums and averages that do not fit."""
    session.conf.set("spark.sql.ansi.enabled", "false")
    folder = written(tmp_path / "in")
    values = {"s": "sum(`A.M`)", "a": "avg(`a.m`)", "w": "sum(N)", "c": "count(`a.m`)"}
    values |= {f"{function}{n}": f"{function}(m{n})" for function in ("sum", "avg") for n in (8, 10, 12)}
    wanted = (
        amounts(session.read, folder).groupBy("USER").agg(*[F.expr(text).alias(name) for name, text in values.items()])
    )
    expected = {row.USER: row.asDict() for row in wanted.collect()}
    found = {}
    with impls.aggregate(
        amounts(session.readStream.option("maxFilesPerTrigger", 1), folder), ["USER"], values,
        results=impls.ForeachBatch(lambda frame, _: found.update({r.USER: r.asDict() for r in frame.collect()})),
        state_dir=tmp_path / "state", checkpoint=tmp_path / "checkpoint", workers=2, bins=16,
    ) as query:  # fmt: skip
        await_true(lambda: query.await_end(0) or found == expected, "Spark's aggregates")
    assert expected["over"]["s"] is None
    assert expected["over"]["w"] == -(1 << 63) + 5
    assert expected["fits"]["s"] == Decimal("-0.75")
    assert expected["none"]["s"] is None

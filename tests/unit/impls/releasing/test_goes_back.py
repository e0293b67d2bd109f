"""What has no twin in Spark is refused before anything is made."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from impls.aggregation import GROUPING_KEY
from impls.errors import StateError, UsageError
from impls.releasing.frames import check_topics
from impls.releasing.matching import check_goes_back
from impls.releasing.template import move_metadata
from impls.spark.topics import Reading

FORMS = {"processor": "key", "aggregates": GROUPING_KEY}


def stored(values, key):
    return SimpleNamespace(form={"values": values}, settings={"key": key, "operator": "Op"}, folder="folder")


@pytest.mark.parametrize(("values", "key"), FORMS.items())
def test_processors_and_aggregates_of_columns_go_back(values, key):
    check_goes_back(stored(values, key))


@pytest.mark.parametrize(
    ("values", "key"), [("json", "key"), ("keyed", "key"), ("aggregates", "user"), ("dense", "key")]
)
def test_other_operators_do_not(values, key):
    with pytest.raises(UsageError, match="runs Op, which Spark does not have"):
        check_goes_back(stored(values, key))


def reading(*topics):
    return Reading(topics)


def test_topics_are_those_of_each_source():
    check_topics([reading("a", "b")], [{"a"}])
    check_topics([reading("a"), reading("b")], [{"a"}, {"b"}])
    check_topics([reading("a"), reading("a")], [{"a"}])
    check_topics([Reading(None)], [{"a"}])
    with pytest.raises(UsageError, match="has read the topic b, and the Spark query does not"):
        check_topics([reading("a")], [{"a", "b"}])
    with pytest.raises(UsageError, match=r"Source 0 .* has read a, .* in the order in which they were"):
        check_topics([reading("b"), reading("a")], [{"a"}, {"b"}])


def test_a_schema_file_in_another_place_than_the_templates_is_an_error(tmp_path):
    folder, template = tmp_path / "state" / "0" / "_metadata" / "v2", Path("/scratch/template")
    folder.mkdir(parents=True)
    (folder / ".0.crc").write_text("sum")

    def moved(name):
        (folder / "0").write_text("v2\n" + json.dumps({"stateStoreInfo": [{"stateSchemaFilePaths": [name]}]}))
        move_metadata(tmp_path, template, "s3a://bucket/orders")
        return json.loads((folder / "0").read_text().splitlines()[1])["stateStoreInfo"][0]["stateSchemaFilePaths"]

    assert moved("file:/scratch/template/state/0/x") == ["s3a://bucket/orders/state/0/x"]
    assert not (folder / ".0.crc").exists()
    with pytest.raises(StateError, match="is not in /scratch/template"):
        moved("file:/scratch/template-2/state/0/x")

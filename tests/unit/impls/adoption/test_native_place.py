"""Where a native checkpoint is: as a path, or as a URI that is literal or not."""

from pathlib import Path

import pytest

from impls.adoption.adopting import _location
from impls.adoption.reading import plain_place
from impls.errors import UsageError


@pytest.mark.parametrize("name", ["a#b", "a%20b", "my data [1]?", "plain"])
def test_a_uri_is_literal_where_that_is_there_and_decoded_where_not(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    for text in (str(place), f"file:{place}", f"file://{place}", place.as_uri()):
        assert _location(text) == str(place), text
    assert _location("s3a://bucket/a%20b") == "s3a://bucket/a%20b"


@pytest.mark.parametrize("name", ["a b", "a#b", "a%20b", "[a]"])
def test_a_path_that_breaks_sparks_readers_is_read_by_a_link(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    with plain_place(str(place), "local[2]") as found:
        assert found != str(place)
        assert Path(found).resolve() == place
    assert not Path(found).exists()
    with pytest.raises(UsageError, match="rename the folders"), plain_place(str(place), "spark://host:7077"):
        pass


@pytest.mark.parametrize("name", ["données", "a(1)", "2026-11-28T12:00", "s3a://bucket/a b"])
def test_every_other_path_stays(tmp_path, name):
    place = name if "://" in name else str(tmp_path / name)
    with plain_place(place, "spark://host:7077") as found:
        assert found == place

"""JSON of operators' values: what the standard library writes and reads."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.protocol.jsontext import value_from_text, value_to_text

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(_VALUES)
def test_a_value_is_written_compactly_and_read_again(value):
    raw = value_to_text(value)
    assert raw == json.dumps(value, separators=(",", ":")).encode()
    assert value_from_text(raw) == value


@given(st.binary(max_size=12) | _VALUES.map(lambda value: json.dumps(value, indent=1).encode("utf-16")))
def test_any_bytes_are_read_or_refused_as_the_standard_library_does(raw):
    try:
        expected = json.loads(raw)
    except ValueError as error:
        with pytest.raises(type(error)):
            value_from_text(raw)
        return
    found = value_from_text(raw)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize("raw", [b"12 ", b" 12", b"12\n"])
def test_spaces_around_a_value_are_none_of_it(raw):
    assert value_from_text(raw) == 12


@pytest.mark.parametrize("raw", [b"12abc", b"1 2", b"", b"\xff"])
def test_what_is_more_or_less_than_a_value_is_refused(raw):
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        value_from_text(raw)

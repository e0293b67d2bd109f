"""JSON of what every epoch writes and reads: reports, plans, observations, meta records, heads of frames.

The standard library takes 30 µs to write a report with 64 bins and 25 µs to read it, orjson 2 µs each. Values of an
operator do not go through here: orjson knows no integers beyond 64 bits and writes NaN as null.
"""

from typing import Any

import orjson


def to_text(data: Any) -> bytes:
    """Returns compact JSON; NumPy's numbers and arrays are numbers and lists.

    >>> to_text({"bins": [1, 2], "ms": 0.5})
    b'{"bins":[1,2],"ms":0.5}'
    """
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


def from_text(text: str | bytes) -> Any:
    """Reads JSON; raises ValueError for anything else."""
    return orjson.loads(text)

"""Sealed files: lengths beyond 4 GiB, columns beyond 2 GiB, and files of another format."""

import pyarrow as pa
import pytest

from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.frame import Frame, Segment, frames_of
from impls.durability.sealed import Front, front_of
from impls.errors import CorruptStateError
from impls.store.bins import write_size
from impls.store.entries import stored_value
from impls.store.environment import Store
from impls.store.records import from_bytes
from impls.store.tables import STATE, bin_key

NAMES = [bin_key(STATE, 1) + b"key %d" % n for n in range(3)]


def of_commit(number):
    return Frame("q", 1, 3, 1, names=NAMES, values=[b"one", None, b"three"], commit={"of": number, "after": {}})


@pytest.mark.parametrize("length", [0, (1 << 32) - 1, 1 << 32, 20 << 30])
def test_a_file_may_be_of_any_length(length):
    front = Front(frames.FORMAT, 7, length)
    assert front_of(front.to_bytes(b"RSLG")) == front


@pytest.mark.parametrize("version", [0, 2, 4])
def test_another_format_is_refused_by_its_number(version):
    raw = bytearray(of_commit(0).encode())
    raw[4:6] = version.to_bytes(2, "little")
    with pytest.raises(CorruptStateError, match=f"has format {version}; this version reads format 3"):
        Frame.decode(bytes(raw), "x")


def streams(tmp_path):
    """Arrow streams of bytes that are stored: of a frame, of snapshots of many equal entries and of few."""
    raw = of_commit(0).encode()
    at = raw.index(b"\xff\xff\xff\xff", front_of(raw).size)  # an Arrow stream begins so
    yield from_bytes(raw[at:])
    for number in (2, 2000):
        names = [bin_key(STATE, 1) + n.to_bytes(4, "big") for n in range(number)]
        with Store.open(tmp_path / str(number)) as store:
            with store.begin() as txn:
                for name in names:
                    txn.put(name, stored_value(name, b"value"))
                write_size(txn, 1, number, 9 * number)
            with store.reading(buffers=False) as txn:
                yield from_bytes(snapshots.image_of(txn, 1, state=True, queue=False).state)


def test_no_column_of_bytes_that_is_stored_ends_at_two_gibibytes(tmp_path):
    for table in streams(tmp_path):
        kinds = {field.type for field in table.schema if not pa.types.is_integer(field.type)}
        assert kinds == {pa.large_binary()}


def test_a_frame_that_the_system_takes_in_pieces_is_whole(tmp_path, monkeypatch):
    files, write = Files(str(tmp_path)), frames.os.write
    files.make_folders([frames.FOLDER])
    monkeypatch.setattr(frames.os, "write", lambda fd, raw: write(fd, raw[:100]))  # at most, as of 2 GiB in one call
    with Segment(files, 3, 1) as segment:
        segment.append(of_commit(0).encode())
    assert len(frames_of(files.read(frames.frame_name(3, 1)), "x")[0]) == 1

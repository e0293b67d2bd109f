"""Segments: the frames of a worker's commits in an epoch, a torn one at the end left out, damage before it named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.durability import frame as frames
from impls.durability.files import Files
from impls.durability.frame import FOLDER, Frame, Segment, frame_name, frames_of, merged
from impls.errors import CorruptStateError, StateError


def frame(number, *, epoch=3, worker=1, **changes):
    return Frame("q", worker, epoch, 1, commit={"of": number, "after": {"commits": number + 1}}, **changes)


@pytest.fixture
def files(tmp_path):
    found = Files(str(tmp_path))
    found.make_folders([FOLDER])
    return found


NAMES = [b"\x01\x00\x01key"]
RAW = [frame(number, names=NAMES, values=[b"%d" % number], results=b"r%d" % number).encode() for number in range(3)]


def commits(frames):
    return [one.commit["of"] for one in frames]


@given(st.integers(0, len(b"".join(RAW))))
def test_a_torn_tail_is_left_out_wherever_it_is_torn(cut):
    whole, ends = b"".join(RAW)[:cut], [sum(map(len, RAW[: n + 1])) for n in range(3)]
    frames, size = frames_of(whole, "here")
    assert commits(frames) == [number for number, end in enumerate(ends) if end <= cut]
    assert size == max([end for end in ends if end <= cut], default=0)


@given(st.integers(0, len(RAW[0] + RAW[1]) - 1))
def test_damage_in_front_of_a_whole_frame_is_named(at):
    raw = bytearray(b"".join(RAW))
    raw[at] ^= 0x10
    with pytest.raises(CorruptStateError, match="the/segment"):
        frames_of(bytes(raw), "the/segment")


@given(st.integers(0, len(RAW[2]) - 1))
def test_damage_of_the_last_frame_is_named_or_taken_for_a_torn_tail(at):
    raw = bytearray(b"".join(RAW))
    raw[len(RAW[0] + RAW[1]) + at] ^= 0x10
    try:
        frames, _ = frames_of(bytes(raw), "the/segment")
    except CorruptStateError:
        return
    assert commits(frames) == [0, 1]


def test_a_segment_goes_on_behind_its_last_whole_frame(files):
    with Segment(files, 3, 1) as segment:
        segment.append(RAW[0])
        segment.append(RAW[1])
    path = files.path(frame_name(3, 1))
    with open(path, "ab") as file:  # noqa: PTH123 - a path of files
        file.write(RAW[2][:-5])
    with Segment(files, 3, 1) as segment:
        assert commits(segment.frames) == [0, 1]
        segment.append(RAW[2])
    assert files.read(frame_name(3, 1)) == b"".join(RAW)


def test_a_full_disk_leaves_the_segment_as_it_was(files, monkeypatch):
    plain = frames._write
    with Segment(files, 3, 1) as segment:
        segment.append(RAW[0])

        def full(fd, raw):
            plain(fd, raw[:7])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(frames, "_write", full)
        with pytest.raises(StateError, match="cannot be written: No space left"):
            segment.append(RAW[1])
        monkeypatch.setattr(frames, "_write", plain)
        segment.append(RAW[1])
    assert files.read(frame_name(3, 1)) == RAW[0] + RAW[1]


def test_merged_frames_say_all_in_their_order():
    first = frame(
        0, fresh=True, pulls=[(1, 0)], names=[b"a"], values=[b"1"], codes=np.array([7]), counts=np.array([1]),
        queue=[(2, b"x")],
    )  # fmt: skip
    second = frame(1, names=[b"a"], values=[None], codes=np.array([7]), counts=np.array([2]), queue=[(2, None)])
    both = merged([first, second])
    assert (both.fresh, both.pulls, both.names, both.values) == (True, [(1, 0)], [b"a", b"a"], [b"1", None])
    assert (both.codes.tolist(), both.counts.tolist(), both.queue) == ([7, 7], [1, 2], [(2, b"x"), (2, None)])
    assert both.commit == second.commit

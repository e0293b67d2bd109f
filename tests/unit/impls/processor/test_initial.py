"""The files of an initial state: which start writes them, and which is refused without them."""

import json

import pytest

from impls.errors import UsageError
from impls.processor.initial import InitialFiles
from impls.processor.operator import InitialState


class Job:
    """Writes one file for each of so many bins."""

    def __init__(self, bins, dies=False):
        self.bins, self.dies = bins, dies

    def __call__(self, folder):
        for bin_ in range(self.bins):
            (folder / f"{bin_}.arrow").write_bytes(b"%d" % self.bins)
        if self.dies:
            raise KeyboardInterrupt


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_start_before_the_first_plan_writes_what_it_was_called_with(tmp_path):
    folder = tmp_path / "initial"
    for bins in (4, 2):  # the first start was refused behind it
        InitialFiles(folder, bins, Job(bins)).write(False)
    assert names(folder) == ["0.arrow", "1.arrow", "done.json"]
    assert (folder / "0.arrow").read_bytes() == b"2"
    assert InitialState(str(folder), ("a",), (0,)).now > 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"now": "x"}', None])
def test_a_start_that_died_while_it_wrote_is_written_anew_and_never_taken_for_whole(tmp_path, text):
    folder = tmp_path / "initial"
    with pytest.raises(KeyboardInterrupt):
        InitialFiles(folder, 4, Job(4, dies=True)).write(False)
    if text is not None:
        (folder / "done.json").write_text(text)
    with pytest.raises(UsageError, match=r"no whole initial state in .*initial: leave out the initialState"):
        InitialFiles(folder, 4, Job(4)).write(True)
    InitialFiles(folder, 4, Job(4)).write(False)
    InitialFiles(folder, 4, Job(4)).write(True)


def test_a_query_that_has_begun_goes_on_with_the_files_there_are(tmp_path):
    folder = tmp_path / "initial"
    InitialFiles(folder, 4, Job(4)).write(False)
    now = InitialState(str(folder), ("a",), (0,)).now
    InitialFiles(folder, 4, Job(3)).write(True)
    assert InitialState(str(folder), ("a",), (0,)).now == now
    assert "3.arrow" in names(folder)
    with pytest.raises(UsageError, match="no whole initial state"):
        InitialFiles(folder, 8, Job(8)).write(True)
    (folder / "done.json").write_text(json.dumps({"now": 7}))  # as it once was
    InitialFiles(folder, 8, Job(8)).write(True)

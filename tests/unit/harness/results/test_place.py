"""Result folders: two of one second, and one that was begun."""

import time

import pytest

from harness.files import write_json
from harness.results.place import find_folder, new_folder
from impls.errors import UsageError


def test_two_results_may_begin_in_one_second(tmp_path):
    folders = []
    for _ in range(3):
        folders.append(new_folder(tmp_path, "quick").name)
        time.sleep(0.002)  # more than the name's last digit
    assert len(set(folders)) == 3
    assert folders == sorted(folders)


def test_the_newest_folder_of_the_same_is_found(tmp_path):
    for name, asked, finished in (("1-a", 1, False), ("2-a", 1, False), ("3-a", 1, True), ("4-a", 2, False)):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "asked.json", asked)
        if finished:
            (tmp_path / name / "done").touch()

    def found(asked: int, *, finished: bool) -> str | None:
        folder = find_folder(tmp_path, "asked.json", asked.__eq__, finished=finished)
        return folder and folder.name

    assert (found(1, finished=False), found(1, finished=True)) == ("2-a", "3-a")
    assert (found(2, finished=False), found(2, finished=True)) == ("4-a", None)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"The result folder .*file.* cannot be made"):
        new_folder(tmp_path / "file", "quick")

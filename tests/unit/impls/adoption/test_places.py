"""An adoption and the log_dir that it writes to: whose files are there, and which of them a failed one deletes."""

import pytest

from impls.adoption.adopting import check_place, cleared_on_error
from impls.adoption.cutover import GENERATION, Target, names_of
from impls.durability import frame as frames
from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.durability.schedule import Manifest, write_manifest
from impls.errors import UsageError

BATCH = 7


@pytest.fixture
def place(tmp_path):
    files = Files(str(tmp_path / "logs"))
    files.make_folders([frames.FOLDER, snapshots.FOLDER])
    return files


def snapshot(files, query, file=0, epoch=BATCH):
    name = snapshots.snapshot_name(epoch, file, GENERATION)
    files.write(name, snapshots.encode(query, file, epoch, []))
    return name


def there(files):
    return [name for folder in (frames.FOLDER, snapshots.FOLDER) for name, _ in files.names(folder)]


@pytest.mark.parametrize("put", [
    lambda files: snapshot(files, "another", epoch=3),
    lambda files: files.write(frames.frame_name(1, 0), b"a changelog"),
    lambda files: write_manifest(files, Manifest.new("another", 4)),
])  # fmt: skip
def test_a_place_with_files_of_a_query_that_has_no_manifest_yet_is_refused(place, put):
    check_place("process", place.uri)
    put(place)
    with pytest.raises(UsageError, match="has the files of another query: name an empty one"):
        check_place("process", place.uri)


def failed(target, error, write):
    with cleared_on_error(target):
        write()
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, UsageError])
def test_a_failed_adoption_deletes_its_own_files(place, error):
    def write():
        for file in range(4):
            snapshot(place, "ours", file)
        write_manifest(place, Manifest.new("ours", 4))

    with pytest.raises(error):
        failed(Target(place, "ours", BATCH, 4), error, write)
    assert there(place) == []
    assert place.read("manifest.json") is None


def test_a_failed_adoption_leaves_what_another_query_has_written_meanwhile(place):
    kept = []

    def write():
        snapshot(place, "ours", 0)
        kept.extend([snapshot(place, "another", 1), snapshot(place, "another", 0, epoch=3)])
        kept.append(snapshots.snapshot_name(BATCH, 2, GENERATION))
        place.write(kept[-1], b"something else")
        write_manifest(place, Manifest.new("another", 4))

    with pytest.raises(UsageError):
        failed(Target(place, "ours", BATCH, 4), UsageError, write)
    assert there(place) == sorted(kept)
    assert b"another" in place.read("manifest.json")


def test_an_adoption_that_succeeds_keeps_its_files(place):
    target = Target(place, "ours", BATCH, 4)
    with cleared_on_error(target):
        snapshot(place, "ours", 3)
    assert there(place) == [names_of(target)[3]]

"""The doctor: what is needed decides the exit code, and a state folder must be where LMDB works."""

import json
from pathlib import Path

import pytest

from harness.setup import doctor

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 22 0:33 / /mnt/far rw - nfs4 server:/export rw
37 36 8:2 / /mnt/far/near rw master:2 - xfs /dev/sdb1 rw
38 22 8:3 / /mnt/with\\040space rw - btrfs /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/srv/state", "ext4"), ("/mnt/far/state", "nfs4"), ("/mnt/far/near/state", "xfs"), ("/mnt/with space", "btrfs")],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder, kind, tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert doctor.file_system(Path(folder), mounts) == kind
    assert doctor.file_system(Path(folder), tmp_path / "none") == "unknown"


def test_the_exit_code_says_whether_something_needed_is_missing(tmp_path, monkeypatch, capsys):
    assert doctor.report(tmp_path / "state", as_json=True) == 0
    found = {one["item"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["LMDB"]["ok"]
    assert found["state folder"]["found"].startswith(f"{tmp_path / 'state'} (")
    assert not list((tmp_path / "state").iterdir()), "its trial leaves nothing"
    (tmp_path / "file").touch()
    assert doctor.report(tmp_path / "file" / "state") == 1
    assert "missing   LMDB" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "_REMOTE", {doctor.file_system(tmp_path)})
    assert doctor.report(tmp_path) == 1
    assert "missing   state folder" in capsys.readouterr().out


def test_what_is_optional_does_not_decide(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_CORES_MIN", 10_000)
    assert doctor.report() == 0
    assert "optional  cores" in capsys.readouterr().out

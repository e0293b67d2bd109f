"""The schedule of a fault test on a cluster, and the file system that its checkpoint is in."""

import subprocess
import threading

import psutil
import pytest
from processes import spawn

from harness.lab.hosts.isolated import UNSHARE, can_isolate
from harness.suites.faults import schedule
from harness.suites.faults.hosts import LoopFileSystem
from harness.suites.faults.schedule import HOST_FAULTS, HOST_QUICK, draw_host_schedule
from impls.errors import UsageError
from impls.faults import POINTS

SEEDS = range(10)
DEADLINE_S = 30.0
VICTIMS = {"executor", "host", "link", "gone", "zombie", "worker", "driver", "jvm", "checkpoint", "disk"}


@pytest.mark.parametrize("seed", SEEDS)
def test_sixty_faults_of_every_kind_in_both_phases(seed):
    schedule = draw_host_schedule(seed)
    assert len(schedule) == 60
    assert {fault.name for fault in schedule} == set(HOST_FAULTS)
    assert {fault.victim for fault in schedule} == VICTIMS
    assert {fault.phase for fault in schedule} == {"steady", "migrating"}
    assert len({fault.id for fault in schedule}) == 60
    assert all(fault.expected == HOST_FAULTS[fault.name] for fault in schedule)
    assert draw_host_schedule(seed) == schedule


def test_an_executor_is_killed_at_every_point_but_one_that_has_its_own_fault():
    points = {name.partition("@")[2] for name in HOST_FAULTS if name.startswith("executor@")}
    assert points == set(POINTS) - {"during-recovery"}


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_faults_in_a_quick_schedule(seed):
    assert sorted(fault.name for fault in draw_host_schedule(seed, quick=True)) == sorted(HOST_QUICK)


def test_only_what_is_asked_for():
    schedule = draw_host_schedule(1, ["meces", "rhino"], only=["host@during-pull"])
    assert [(fault.mechanism, fault.name) for fault in schedule] == [
        ("meces", "host@during-pull"), ("rhino", "host@during-pull"),
    ]  # fmt: skip


@pytest.fixture
def shared(tmp_path):
    if not can_isolate():
        pytest.skip("file systems are mounted by root only")
    made = LoopFileSystem(tmp_path / "checkpoint")
    made.mount()
    assert made.mounted
    yield made
    made.unmount()


def test_a_frozen_file_system_takes_a_file_when_it_is_thawed(shared):
    file = shared.folder / "file"
    writer = threading.Thread(target=file.write_text, args=("text",), daemon=True)
    with shared.frozen():
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
    writer.join(DEADLINE_S)
    assert file.read_text() == "text"


def test_a_slow_file_system_takes_every_file(shared):
    with shared.slow():
        for number in range(20):
            (shared.folder / str(number)).write_text("text")
    (shared.folder / "last").write_text("text")
    assert len(list(shared.folder.iterdir())) == 22, "with lost+found"


def test_a_file_system_is_gone_on_a_host_and_still_here(shared):
    (shared.folder / "file").write_text("text")
    look = f"echo; while read _; do ls {shared.folder}; touch {shared.folder}/new; echo -; done"
    host = spawn(
        [*UNSHARE, "--", "sh", "-c", look], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    host.stdout.readline()  # it is a host of its own now

    def seen():
        host.stdin.write("\n")
        host.stdin.flush()
        return list(iter(host.stdout.readline, "-\n"))

    [first] = psutil.Process(host.pid).children()
    with shared.gone_on([first.pid]):
        assert seen() == []
        assert sorted(path.name for path in shared.folder.iterdir()) == ["file", "lost+found"]
    assert seen() == ["file\n", "lost+found\n"]
    assert (shared.folder / "new").exists()
    host.stdin.close()
    host.wait(DEADLINE_S)


def test_who_may_not_inflict_a_fault_is_told_so(monkeypatch):
    monkeypatch.setattr(schedule, "can_isolate", lambda: False)
    schedule.check_rights(draw_host_schedule(1, only=["executor@during-pull"]))
    with pytest.raises(UsageError, match="The fault link@during-pull needs hosts in namespaces"):
        schedule.check_rights(draw_host_schedule(1, only=["link@during-pull"]))

"""How much CPU time was taken from a run follows from samples of counters; one share of it marks the run."""

import os
import subprocess
import sys

import pytest
from synthetic import BEGIN_US

from harness.measure import cpu
from harness.measure.cpu import BUSY, CpuReader, Taken, idle_share, machine, own_ticks, taken

S = 1_000_000


def samples(*seconds, cores=2, whole=True):
    """Lines of memory.jsonl; of each second: microseconds of own, other, stolen and throttled time."""
    sums = dict.fromkeys(("own", "used", "steal", "idle", "throttled"), 7 * S)
    lines = [{"at_us": BEGIN_US, "roles": {}, "cpu": dict(sums)}]
    for number, (own, others, steal, throttled) in enumerate(seconds, 1):
        idle = cores * S - own - others - steal
        for name, spent in zip(sums, (own, own + others, steal, idle, throttled), strict=True):
            sums[name] += spent
        seen = {name: value for name, value in sums.items() if whole or name != "used"}
        lines.append({"at_us": BEGIN_US + number * S, "roles": {}, "cpu": seen})
        lines.append({"at_us": BEGIN_US + number * S + S // 5, "roles": {}})
    return lines


def of(*seconds, **named):
    return taken(samples(*seconds, **named), BEGIN_US, BEGIN_US + 100 * S)


@pytest.mark.parametrize(
    ("second", "share"),
    [
        ((S, 0, 0, 0), 0.0),
        ((S, 0, S, 0), 0.5),  # the hypervisor took half
        ((S, S // 2, 0, 0), 0.0),  # others used no more than was left idle
        ((S, 3 * S // 4, 0, 0), 1 / 3),  # half a second more than was left idle
        ((S, 0, 0, S), 0.5),  # held back at a quota
        ((900_000, 0, 100_000, 0), 0.1),
    ],
)
def test_the_share_is_of_what_the_run_wanted(second, share):
    found = of(*[second] * 5)
    assert found.share == pytest.approx(share)
    assert found.share == pytest.approx(found.steal + found.others + found.throttled)
    assert machine(found) == ("busy" if share > BUSY else "quiet")


def test_idle_time_of_one_second_is_of_no_use_in_another():
    calm, full = (S // 2, 0, 0, 0), (S, S, 0, 0)
    assert of(calm, full, calm, full).others == pytest.approx(2 / 5)


def test_what_others_use_is_not_known_where_the_run_is_not_one_tree():
    assert of(*[(S, S, 0, 0)] * 3, whole=False).share == 0.0
    assert of(*[(S, 0, S, 0)] * 3, whole=False).steal == pytest.approx(0.5)


def test_only_the_measured_part_counts():
    lines = samples(*[(S, S, 0, 0)] * 4, *[(S, 0, 0, 0)] * 4)
    assert taken(lines, BEGIN_US + 4 * S, BEGIN_US + 8 * S).share == 0.0
    assert taken(lines, BEGIN_US, BEGIN_US + 8 * S).share > BUSY


def test_idle_is_what_nobody_used_of_all_cores():
    lines = samples((S, S // 2, 0, 0), (S, S, 0, 0), (S, 0, S // 2, 0))
    assert idle_share(lines, BEGIN_US, BEGIN_US + 3 * S) == pytest.approx(1 / 6)
    assert idle_share(lines, BEGIN_US + S, BEGIN_US + 3 * S) == pytest.approx(1 / 8)
    assert idle_share(lines, BEGIN_US, BEGIN_US + S) is None
    assert idle_share(samples(*[(S, 0, 0, 0)] * 3, whole=False), BEGIN_US, BEGIN_US + 3 * S) is None


def test_too_little_is_unknown():
    assert of((S, 0, 0, 0)) is None
    assert taken([{"at_us": BEGIN_US, "roles": {}}] * 9, BEGIN_US, BEGIN_US + 9 * S) is None
    assert of(*[(0, 0, 0, 0)] * 3) is None
    assert machine(None) == "unknown"


def test_a_sum_that_falls_is_passed_over():
    lines = samples(*[(S, 0, 0, 0)] * 4)
    lines[-2]["cpu"]["own"] = 0
    assert taken(lines, BEGIN_US, BEGIN_US + 9 * S) == Taken(0.0, 0.0, 0.0, 0.0)


def test_descendants_count_as_the_run_s_own():
    processes = [(1, 0, 100), (7, 1, 5), (8, 7, 20), (9, 8, 300), (10, 1, 4_000)]
    assert own_ticks(processes, 7) == {"own": 325}
    assert own_ticks(processes, 7, {"broker": 8, "generator": 10}) == {"own": 325, "own_broker": 320}
    assert own_ticks([(1, 0, 100)], 7) == {"own": 0}


BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_a_child_s_time_is_seen_on_this_machine():
    if not sys.platform.startswith("linux"):
        assert CpuReader(os.getpid()).read() is None
        return
    reader = CpuReader(os.getpid())
    before = reader.read()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    after = reader.read()
    assert after["own"] - before["own"] >= 400_000
    assert after["used"] >= after["own"]
    assert "used" not in CpuReader(os.getpid(), whole=False).read()


@pytest.mark.parametrize(
    ("names", "text", "throttled"),
    [
        ("", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1234\n", 1234),
        ("cpu", "nr_periods 0\nnr_throttled 0\nthrottled_time 5000000\n", 5000),
        ("cpu", "usage_usec 5\n", None),
    ],
)
def test_throttling_is_read_of_both_versions_of_control_groups(tmp_path, monkeypatch, names, text, throttled):
    kernel, groups = tmp_path / "proc", tmp_path / "groups"
    (kernel / "self").mkdir(parents=True)
    (kernel / "self" / "cgroup").write_text(f"3:memory:/else\n1:{names}:/mine\n")
    (groups / names / "mine").mkdir(parents=True)
    (groups / names / "mine" / "cpu.stat").write_text(text)
    (kernel / "stat").write_text("cpu  10 0 5 100 1 0 0 7 0 0\nintr 9\n")
    monkeypatch.setattr(cpu, "_KERNEL", kernel)
    monkeypatch.setattr(cpu, "_GROUPS", groups)
    found = CpuReader(1).read()
    assert (found["steal"], found["idle"], found["used"]) == (70_000, 1_010_000, 150_000)
    assert found.get("throttled") == throttled


@pytest.mark.parametrize(
    ("mine", "idle", "used", "steal"),
    [
        ({0}, 300_000, 100_000, 0),
        ({1}, 0, 390_000, 10_000),
        ({0, 1}, 300_000, 490_000, 10_000),
        ({8}, 350_000, 990_000, 60_000),  # it is numbered otherwise than in the file, which a container may show
    ],
)
def test_the_machine_is_the_processors_that_the_process_may_use(tmp_path, monkeypatch, mine, idle, used, steal):
    (tmp_path / "stat").write_text(
        "cpu  60 9 30 30 5 0 0 6 0 0\ncpu0 10 0 0 25 5 0 0 0 0 0\ncpu1 30 9 0 0 0 0 0 1 0 0\nintr 9\n"
    )
    monkeypatch.setattr(cpu, "_KERNEL", tmp_path)
    monkeypatch.setattr(cpu, "cores", lambda: mine)
    found = CpuReader(1).read()
    assert (found["idle"], found["used"], found["steal"]) == (idle, used, steal)

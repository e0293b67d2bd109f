"""The histogram logs hold every record once and are read by the tools of both languages."""

import shutil
import subprocess

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from synthetic import write_run

from harness.measure.hdr import HIGHEST_US, MeasureError
from harness.measure.hlog import Entry, write_hlog
from harness.results.runfiles import RunFiles

START_US = 1_767_225_600_123_456
JAVA_DEADLINE_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, mechanism="megaphone-batched", seconds=15, rate=1_000)
    return RunFiles(folder)


def read(path):
    """Histograms of a log as hdrhistogram reads them."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_US, 3))
    out = []
    while (one := reader.get_next_interval_histogram()) is not None:
        out.append(one)
    reader.close()
    return out, reader


@pytest.mark.parametrize("name", ["intervals.hlog", "epochs.hlog"])
def test_hdrhistogram_reads_every_record_once(files, name):
    found, reader = read(files.folder / name)
    assert sum(one.get_total_count() for one in found) == files.cells.records == 15_000
    assert {one.get_tag() for one in found} == {"warmup", "steady", "migrating", "migrating-moved", "after"}
    assert reader.observed_start_time
    assert reader.observed_base_time
    begins = [one.get_start_time_stamp() for one in found]
    assert begins == sorted(begins)
    assert abs(reader.start_time_sec * 1e6 - files.start_us) < 1e6
    assert max(one.get_max_value() for one in found) == round(files.timeline.max.max())


def test_intervals_are_quarters_of_a_second_of_scheduled_time(files):
    found, _ = read(files.folder / "intervals.hlog")
    for one in found:
        begin_ms, end_ms = one.get_start_time_stamp(), one.get_end_time_stamp()
        assert end_ms - begin_ms == pytest.approx(250, abs=0.01)
        assert begin_ms % 250 == pytest.approx(0, abs=0.01) or begin_ms % 250 == pytest.approx(250, abs=0.01)


def test_the_line_says_its_highest_value_unrounded(tmp_path):
    entry = Entry("steady", START_US, START_US + 250_000, np.array([1_234]), np.array([1]))
    write_hlog(tmp_path / "a.hlog", [entry], start_us=START_US)
    header, line = (tmp_path / "a.hlog").read_text().rstrip().rsplit("\n", 1)
    assert line.startswith("Tag=steady,0.000000,0.250000,1.234,HISTF")
    assert "unit us" in header
    assert "[Histogram log format version 1.3]" in header


def test_memory_is_logged_by_role_in_kib(files):
    found, _ = read(files.folder / "memory.hlog")
    assert {"worker", "worker_max", "jvm", "broker", "driver", "generator"} == {one.get_tag() for one in found}
    jvm = max(one.get_max_value() for one in found if one.get_tag() == "jvm")
    assert jvm * 1024 == pytest.approx(max(line["roles"]["jvm"]["rss"] for line in files.memory), rel=2e-3)


def test_a_value_out_of_range_leaves_no_file(tmp_path):
    entry = Entry("steady", START_US, START_US + 1, np.array([HIGHEST_US * 2]), np.array([3]))
    with pytest.raises(MeasureError, match="3 latencies"):
        write_hlog(tmp_path / "a.hlog", [entry], start_us=START_US)
    assert not list(tmp_path.iterdir())


@pytest.mark.lengthy  # starts Java
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
@pytest.mark.parametrize("name", ["intervals.hlog", "epochs.hlog", "memory.hlog"])
def test_the_java_tools_read_the_same(files, name):
    from harness.setup.java import ensure_jars, find_java

    jar = next(path for path in ensure_jars().broker if path.name.startswith("HdrHistogram"))
    found, _ = read(files.folder / name)
    for tag in sorted({one.get_tag() for one in found}):
        command = [find_java(), "-cp", jar, "org.HdrHistogram.HistogramLogProcessor"]
        command += ["-i", files.folder / name, "-tag", tag, "-outputValueUnitRatio", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_DEADLINE_S, check=True)
        own = [one for one in found if one.get_tag() == tag]
        numbers = dict(
            part.split("=") for line in done.stdout.splitlines() if line.startswith("#[Max")
            for part in line.strip("#[] ").replace(" ", "").split(",")
        )  # fmt: skip
        assert not done.stderr
        assert int(numbers["Totalcount"]) == sum(one.get_total_count() for one in own)
        assert float(numbers["Max"]) == max(one.get_max_value() for one in own)

"""Cuts that are read while drivers and workers are killed: each is right or refused, and the query loses nothing."""

import contextlib
import signal
import threading
import time
from collections import Counter
from random import Random

import psutil
import pytest
from foreach_process import ForeachProcess
from numbered_files import Files, calls_in
from pipeline import await_true

import impls
from impls.driver.control import ask
from impls.errors import StateError, UsageError

DAEMON = "impls.spark.daemon"


class Reader(threading.Thread):
    """Reads cuts of a query over and over, from another process than the query's."""

    def __init__(self, checkpoint):
        super().__init__()
        self.checkpoint, self.going = checkpoint, True
        self.cuts, self.refused, self.failure = [], Counter(), None

    def run(self):
        try:
            while self.going:
                self._read()
        except BaseException as failure:
            self.failure = failure

    def _read(self):
        try:
            with impls.cut_of(self.checkpoint) as cut:
                frame = cut.to_pandas()
        except (UsageError, StateError) as error:
            self.refused[type(error).__name__] += 1
            time.sleep(0.05)
            return
        counts = dict(zip(frame.key, frame.value, strict=True))
        assert len(counts) == len(frame), "a key comes once"
        self.cuts.append((cut.epoch, cut.queued, counts))


def workers_of(process):
    """Python workers of a query's Spark, which the daemon has forked."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if DAEMON in child.cmdline() and DAEMON in child.parent().cmdline():
                found.append(child)
    return found


def kill_one(workers, random):
    """Kills one of some workers, and returns whether there was one."""
    try:
        random.choice(workers).send_signal(signal.SIGKILL)
    except (IndexError, psutil.NoSuchProcess):
        return False
    return True


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "faults", [pytest.param(3, marks=pytest.mark.lengthy), pytest.param(20, marks=pytest.mark.slow)]
)
def test_a_cut_is_right_or_refused_whoever_is_killed_and_the_query_loses_nothing(tmp_path, faults):
    files, random = Files(tmp_path), Random(7)
    files.write(40)
    child = ForeachProcess(tmp_path)
    readers = [Reader(tmp_path / "checkpoint") for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(faults):
            before = len(calls_in(tmp_path))
            for _ in range(3):
                files.write(40)
            await_true(lambda before=before: len(calls_in(tmp_path)) > before, "another epoch", 180)
            ask(tmp_path / "checkpoint", {"do": "rescale", "workers": 2 + number % 3})
            time.sleep(random.random())  # anywhere in a migration
            if number % 2:
                await_true(lambda child=child: kill_one(workers_of(child.process), random), "a worker to kill")
            else:
                child.process.kill()
                assert child.await_end() == -9
                child = ForeachProcess(tmp_path)
        await_true(lambda: child.process.poll() is not None or _applied(tmp_path) == files.sent, "all records", 180)
    finally:
        for reader in readers:
            reader.going = False
        for reader in readers:
            reader.join()
    (tmp_path / "stop").touch()
    assert child.await_end() == 0, child.log.read_text()[-2000:]
    calls = dict(calls_in(tmp_path))
    assert [list(map(tuple, calls[epoch])) for epoch in sorted(calls) if calls[epoch]] == files.expected(1)
    for reader in readers:
        assert reader.failure is None
        assert reader.cuts
        for epoch, queued, counts in reader.cuts:
            assert queued or counts == _at_end(calls, epoch)


def _applied(folder):
    return sum({user: n for _, rows in calls_in(folder) for user, n, _ in rows}.values())


def _at_end(calls, epoch):
    """The counts of all users at the end of an epoch, as the query's own results have them."""
    return {user: n for number in sorted(calls) if number <= epoch for user, n, _ in calls[number]}

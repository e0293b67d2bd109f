"""Scenarios in real time: each runs in a process of its own, as its Spark session needs settings of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import spawn

from harness.files import ROOT


def in_real_time(file: str, kafka: str, topics: list[str], folder: Path, scenario: str = "chain") -> str:
    """Runs a file as a program, whose argument is this as JSON, and returns what it says."""
    given = json.dumps({"kafka": kafka, "topics": topics, "folder": str(folder), "scenario": scenario})
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = spawn([sys.executable, file, given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    out, said = child.communicate(timeout=560)
    assert child.returncode == 0, said[-3000:]
    return str(out)


def session_for(partitions: list[int], slots: int) -> Any:
    """Returns a session for queries in real time beside each other, each of so many input partitions."""
    from harness.setup.java import ensure_jars
    from impls.spark.realtime.settings import real_time_settings, real_time_threads
    from impls.spark.session import spark_session

    threads = sum(real_time_threads(number, slots) for number in partitions)
    return spark_session(ensure_jars().spark, threads=threads, settings=real_time_settings())

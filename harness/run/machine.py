"""Whether this machine has what an experiment needs."""

from pathlib import Path

from harness.experiment.checks import check_space
from harness.experiment.description import Experiment
from harness.lab.broker import ExternalBroker
from harness.setup.java import use_java
from impls.spark.master import check_master

__all__ = ["check_machine"]


def check_machine(experiment: Experiment, output: Path) -> None:
    """Raises UsageError when Java, disk space, a folder, the broker or the master named is not there."""
    use_java()
    for folder in (output, *([Path(experiment.state_dir)] if experiment.state_dir else [])):
        check_space(folder, experiment)
    if experiment.bootstrap is not None:
        ExternalBroker(experiment.bootstrap).start()
    check_master(experiment.master)

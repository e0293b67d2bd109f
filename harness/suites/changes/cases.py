"""What the suite runs: an experiment, how it is carried out, and the load; its description as JSON.

`live` changes the running query. `stop-and-restart` stops it and starts it with the new code, or the new assignment,
on the same checkpoint; the Spark session stays. `new-application` ends the query's process too, as whoever replaces
code in a Spark program without this runtime has to. `eager` and `lazy` say when state takes its new shape.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment, Run
from harness.experiment.parameters import REAL_TIME
from harness.files import read_json
from harness.oracle.changes.columns import VersionEffect

LIVE, RESTART, APPLICATION = "live", "stop-and-restart", "new-application"
EAGER, LAZY = "eager", "lazy"
_KILLED = " with a worker killed"
EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "rebalance": (LIVE, RESTART),
    "insert-filter": (LIVE, RESTART, APPLICATION),
    "replace-function": (LIVE, RESTART, APPLICATION),
    "change-shape": (EAGER, LAZY, EAGER + _KILLED, LAZY + _KILLED),
}
_AFTER = {  # the code there is when an experiment is over
    "rebalance": VersionEffect(),
    "insert-filter": VersionEffect(sieve=True),
    "replace-function": VersionEffect(label=2),
    "change-shape": VersionEffect(shape=2),
}
_PARTITIONS, _RESULT_PARTITIONS = 2, 4
_BATCH = "5 minutes"


@dataclass(frozen=True)
class Setting:
    """What all cases of a suite have in common.

    Attributes:
        mode: how Spark runs the query.
        keys: number of keys, all of which have state from the beginning.
        rate: records/s.
        workers, workers_goal: number of workers, and after the rescale in the midst of a change of the shape.
        bins: number of bins.
        lead_in_s, steady_s, after_s: seconds of load before the steady part, in it, and after the change.
        seed: what the keys are drawn from.
        mechanism: how bins move, unless the query is stopped for that.
    """

    mode: str
    keys: int
    rate: int
    workers: int
    workers_goal: int
    bins: int
    lead_in_s: float
    steady_s: float
    after_s: float
    seed: int
    mechanism: str = "megaphone-batched"


@dataclass(frozen=True)
class ChangeCase:
    """One experiment carried out in one way."""

    experiment: str
    how: str
    setting: Setting

    @property
    def name(self) -> str:
        """A name that no other case of the suite has, for a folder."""
        return f"{self.experiment}-{self.how}".replace(" ", "-")

    @property
    def code(self) -> VersionEffect:
        """What the pipeline does when the change holds."""
        return _AFTER[self.experiment]

    @property
    def restarts(self) -> bool:
        """Whether the query is stopped and started for the change."""
        return self.how in {RESTART, APPLICATION}

    @property
    def moves(self) -> bool:
        """Whether bins move."""
        return self.experiment in {"rebalance", "change-shape"}

    @property
    def lazy(self) -> bool:
        """Whether state takes its new shape when something touches it."""
        return self.how.startswith(LAZY)

    @property
    def killed(self) -> bool:
        """Whether a worker is killed in the midst."""
        return self.how.endswith(_KILLED)

    @property
    def mechanism(self) -> str:
        """How bins move."""
        return "runtime-restart" if self.restarts and self.moves else self.setting.mechanism

    def run(self, bootstrap: str) -> Run:
        """Returns the query's parameters as a run of an experiment."""
        setting = self.setting
        experiment = Experiment(
            mechanisms=(self.mechanism,), modes=(setting.mode,), workload="hash", keys=setting.keys, rate=setting.rate,
            bins=setting.bins, workers=setting.workers, workers_goal=max(setting.workers, setting.workers_goal),
            seed=setting.seed, input_partitions=_PARTITIONS, result_partitions=_RESULT_PARTITIONS, bootstrap=bootstrap,
            batch=_BATCH, lead_in_s=setting.lead_in_s, name="changes",
        )  # fmt: skip
        return Run(experiment, self.mechanism, 0, 0, mode=setting.mode)

    @property
    def real_time(self) -> bool:
        """Whether the query runs in real time."""
        return self.setting.mode == REAL_TIME

    def to_json(self) -> dict[str, Any]:
        """Returns the description."""
        return asdict(self)

    @classmethod
    def read(cls, folder: Path) -> "ChangeCase":
        """Reads case.json of a case's folder."""
        data = read_json(folder / "case.json")
        return cls(data["experiment"], data["how"], Setting(**data["setting"]))


def cases_of(setting: Setting, experiments: Sequence[str] = (), *, quick: bool = False) -> list[ChangeCase]:
    """Returns the cases of experiments, by default of all.

    `quick` leaves out new applications, and two of the four changes of the shape.
    """
    left_out = {APPLICATION, EAGER, LAZY + _KILLED} if quick else set()
    return [
        ChangeCase(name, how, setting)
        for name, ways in EXPERIMENTS.items()
        for how in ways
        if (not experiments or name in experiments) and how not in left_out
    ]

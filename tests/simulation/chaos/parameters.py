"""What one seed decides: the query, its input, its commands, and the faults it must survive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

import numpy as np
from crash_simulator import OnDemand

from chaos.requests import Asked, draw_changes, draw_linked, draw_policy, draw_refused, proof_epochs
from impls import catalog
from impls.placement import goal, initial
from impls.protocol.controller import Controller
from impls.protocol.mechanism import Mechanism

OPERATORS = ("dense", "hash", "preloaded", "chain")
DRIVER_POINTS = (
    "before-plan", "after-plan", "before-epoch-commit", "between-pull-and-drop", "job", "appended", "write", "rewrite",
)  # fmt: skip
COUNTED = {"job": 16, "appended": 3, "write": 1, "rewrite": 3}  # the driver comes to these points so often, or oftener
KINDS = {"die": 6, "hang": 5, "twice": 3, "driver": 5, "host": 1, "lose": 3, "stale": 2, "flip": 3}
_DAMAGE = {"lose", "stale", "flip"}
DROP_ENTRIES = 2  # a worker drops one bin of entries, or two of one block, in an epoch
RESTART = -1  # in place of a step of the stage: while no driver runs
REPLICAS = "replicas"  # in place of a point: the worker's replicas, not its state
LEVELS = ("none", "process", "process", "process")
_NEEDS_FILES = {"rhino", "replicated-dataflow", "spacker"}  # replicas are fed from the changelog
_KINDS_OF_NONE = {"die", "twice", "driver"}  # what durability "none" survives: the death of processes
_OF_HOSTS = ("hosts", "cores", "wander", "streams")
# in external-state every worker has its part of a server's store, and neither environment nor changelog of its own
APART = {"drrs", "spacker"}  # simulated by tests of their own: one name more gives every seed another query
_MECHANISMS = [name for name in catalog.names() if name not in {"none", "external-state", *APART}]
SEEDS = range(40)
# what both simulations run in tests: (seed, what is not drawn)
CASES: list[tuple[int, dict[str, Any]]] = [(seed, {}) for seed in SEEDS]
CASES += [(seed, {"mechanism": name}) for name in sorted(APART) for seed in range(15)]


@dataclass(frozen=True)
class Fault:
    """One fault; what its numbers mean is in `__str__`.

    Attributes:
        epoch: when.
        kind: one of KINDS.
        worker: whose task or environment, modulo the workers of the epoch.
        at: how far into it, in points that the attempt, or steps that the stage, has come to.
        times: how often, or how long.
        point: where the driver dies, or REPLICAS.
    """

    epoch: int
    kind: str
    worker: int = 0
    at: int = 0
    times: int = 1
    point: str = ""

    def __str__(self) -> str:
        of = f"the {self.point or 'state'} of worker {self.worker}"
        when = "between two drivers" if self.at == RESTART else f"at step {self.at}"
        what = {
            "die": f"{self.times} attempts of worker {self.worker} die at their point {self.at}",
            "hang": f"worker {self.worker} hangs at its point {self.at} for {self.times} epochs",
            "twice": f"worker {self.worker} runs twice",
            "driver": f"the driver dies at {self.point}" + (f" {self.at}" if self.point in COUNTED else ""),
            "host": f"the host dies {'after' if self.at else 'before'} the epoch is committed, its frames are torn",
            "lose": f"{of} is deleted {when}",
            "stale": f"{of} is {self.times} epochs old",
            "flip": f"{self.times} bits flip in {of}",
            "gone": f"host {self.worker} dies {when} and is back {self._back}",
            "cut": f"host {self.worker} is cut off {when} and is back {self._back}",
            "executor": f"the executor of host {self.worker} dies {when}",
            "server": f"the server of host {self.worker} dies {when}",
            "link": f"pulls to and from host {self.worker} break at message {self.at} for {self.times} epochs more",
            "join": "a host joins",
        }
        return f"epoch {self.epoch}: {what[self.kind]}"

    @property
    def _back(self) -> str:
        return f"{self.times} epochs later" + (f" ({self.point})" if self.point else "")


@dataclass(frozen=True)
class Parameters:
    """All that a run depends on."""

    seed: int
    mechanism: str
    options: dict[str, Any]
    durability: str
    operator: str
    keys: int
    bins: int
    workers: int
    replay_epochs: int
    base_epochs: int
    epochs: int
    records: int
    skew: float
    idle: float
    slots: int
    switch: float
    commands: tuple[tuple[int, str, int], ...]
    faults: tuple[Fault, ...]
    hosts: int = 0  # where it is 0 the three below are nothing
    cores: int = 0
    wander: float = 0.0
    streams: int = 0
    changes: tuple[Asked, ...] = ()  # of the pipeline
    autoscale: str = ""  # the policy, "" for none
    refused: float = 0.0  # records that cannot be applied, for each that can
    linked: float = 0.0  # how often the records, results of another query, are sent again; 0 where they are none

    @property
    def proof_epochs(self) -> int:
        """For how many epochs a change that is done may be taken back."""
        return proof_epochs(self.changes)

    @property
    def filters(self) -> bool:
        """Whether a version may leave out records that another one takes."""
        return bool({"insert", "remove"} & {kind for _, kind, _ in self.changes})

    @property
    def bad(self) -> float:
        """Share of the records on which rare failures come."""
        return 0.03 if self.proof_epochs > self.epochs else 0.0

    def __str__(self) -> str:
        hidden = {"seed", "faults", "options"} | ({*_OF_HOSTS} if not self.hosts else set())
        names = [field.name for field in fields(self) if field.name not in hidden]
        drawn = {name: getattr(self, name) for name in names}
        drawn["mechanism"] = self.mechanism + "".join(f" {k}={v}" for k, v in self.options.items())
        for name in ("commands", "changes"):
            drawn[name] = ", ".join(f"{kind} {value} at {epoch}" for epoch, kind, value in getattr(self, name))
        return "; ".join(f"{name} {value}" for name, value in drawn.items())

    def make_mechanism(self) -> Mechanism:
        """Returns the mechanism that the run migrates with."""
        if self.mechanism == "on-demand":
            return OnDemand(self.options["budget"])
        return catalog.make(self.mechanism, **self.options)

    def make_controller(self) -> Controller:
        """Returns a controller at the query's begin."""
        return Controller(initial(self.bins, self.workers), self.make_mechanism(), drop_entries=DROP_ENTRIES)

    def goal(self, kind: str, value: int, current: Any) -> Any:
        """Returns the goal of a command, int32 of shape (bins,)."""
        goals: dict[str, Callable[[], Any]] = {
            "rescale": lambda: goal("minimal_move", current, value),
            "contiguous": lambda: goal("contiguous", current, value),
            "shuffle": lambda: np.random.default_rng(value).integers(0, self.workers, self.bins),
            "home": lambda: initial(self.bins, self.workers),
        }
        return goals[kind]().astype(np.int32)


def draw(seed: int, *, kinds: dict[str, int] | None = None, faults: int | None = None, **fixed: Any) -> Parameters:
    """Returns what a seed decides.

    `kinds` weighs the faults, `faults` is their number, and `fixed` replaces what is drawn.
    """
    random = Random(seed)
    name = fixed.get("mechanism", random.choice(_MECHANISMS * 2 + ["none"] + ["on-demand"] * 3))
    options = _options(random, name)
    level = "process" if name in _NEEDS_FILES else random.choice(LEVELS)
    bins, workers = random.choice((8, 8, 16, 16, 32)), random.choice((1, 2, 2, 3, 3, 4, 5, 6))
    drawn = Parameters(
        seed=seed, mechanism=name, options=options, durability=level, operator=random.choice(OPERATORS),
        keys=random.randint(20, 250), bins=bins, workers=workers, replay_epochs=random.choice((5, 8, 12, 20, 30)),
        base_epochs=random.randint(4, 40), epochs=random.randint(24, 34), records=random.choice((5, 20, 60)),
        skew=random.choice((0.0, 0.6, 1.2)), idle=random.choice((0.1, 0.3)), slots=random.randint(1, 4),
        switch=random.choice((0.1, 0.3, 0.6)),
        commands=(), faults=(),
    )  # fmt: skip
    drawn = replace(drawn, **{name: value for name, value in fixed.items() if name not in {"commands", "faults"}})
    commands = fixed.get("commands", _commands(random, drawn))
    drawn = replace(drawn, changes=fixed.get("changes", draw_changes(seed, drawn.epochs)))
    policy = "" if drawn.mechanism == "none" else draw_policy(seed)
    drawn = replace(drawn, autoscale=fixed.get("autoscale", policy), refused=fixed.get("refused", draw_refused(seed)))
    drawn = replace(drawn, linked=fixed.get("linked", draw_linked(seed)))
    if drawn.changes and "operator" not in fixed and seed % 3:  # the only one whose state can take another shape
        drawn = replace(drawn, operator="chain")
    return replace(drawn, commands=commands, faults=_faults(random, drawn, kinds or KINDS, faults))


_PULLED, _COPIED = (0, 100, 400, 2000, 10000), (0, 1000, 1 << 20)  # bytes
_VALUES: dict[str, dict[str, Sequence[Any]]] = {  # of options; their order is that of the draws
    "on-demand": {"budget": _PULLED},
    "megaphone-batched": {"bins_per_pair": range(1, 5), "gap_epochs": (0, 0, 1)},
    "meces": {"pull_budget_bytes": _PULLED},
    "order-unaware": {"pull_budget_bytes": _PULLED},
    "rhino": {"replicate_bytes": _COPIED, "interval_epochs": range(1, 7), "factor": range(3)},
    "replicated-dataflow": {"catch_up_epochs": range(1, 6), "replicate_bytes": _COPIED},
    "drrs": {"subscale_bins": (0, 1, 7), "concurrent": (1, 2, 3), "pull_budget_bytes": _PULLED},
    "spacker": {
        "order": ("hot", "bin", "random"), "chunk_bins": (0, 1, 3, 16), "replicated": (0.3, 1.0),
        "interval_epochs": range(1, 7), "replicate_bytes": _COPIED,
    },
}  # fmt: skip


def _options(random: Random, mechanism: str) -> dict[str, Any]:
    drawn = {option: random.choice(values) for option, values in _VALUES.get(mechanism, {}).items()}
    counted = {"small_bytes": 0} if mechanism == "megaphone-batched" else {}  # all bins here are small
    return counted | drawn


def _commands(random: Random, drawn: Parameters) -> tuple[tuple[int, str, int], ...]:
    """Returns one to four commands, some of them while the one before is under way, some there and back."""
    found, epoch = [], random.randint(0, 6)
    for _ in range(random.randint(1, 4)):
        kind = random.choice(("rescale", "rescale", "contiguous", "shuffle", "home"))
        found.append((epoch, kind, random.randint(1, 6)))
        epoch += random.choice((0, 1, 2, 3, 5, 8))
    return tuple(command for command in found if command[0] < drawn.epochs)


def _faults(random: Random, drawn: Parameters, kinds: dict[str, int], number: int | None) -> tuple[Fault, ...]:
    if drawn.durability == "none":
        kinds = {kind: weight for kind, weight in kinds.items() if kind in _KINDS_OF_NONE}
    if not kinds:
        return ()
    chosen = random.choices(list(kinds), list(kinds.values()), k=random.randint(2, 8) if number is None else number)
    faults: list[Fault] = []
    for kind in chosen:
        fault = _fault(random, drawn, kind)
        if faults and random.random() < 0.4:  # what befalls an epoch that something else befalls too is worth most
            fault = replace(fault, epoch=faults[-1].epoch + random.choice((0, 0, 1)))
        faults.append(fault)
    faults.sort(key=lambda fault: fault.epoch)
    hosts = {fault.epoch for fault in faults if fault.kind == "host"}
    return tuple(fault for fault in faults if not _spoils(fault, hosts))


def _spoils(fault: Fault, hosts: set[int]) -> bool:
    """Returns whether a fault would take the one copy that heals what the failure of a host has torn."""
    if fault.kind in {"die", "hang", *_DAMAGE} and fault.epoch - 1 in hosts:
        return True
    return fault.kind in _DAMAGE | {"hang", "twice", "die"} and fault.epoch in hosts


def _fault(random: Random, drawn: Parameters, kind: str) -> Fault:
    epoch, worker = random.randint(1, drawn.epochs - 4), random.randrange(6)
    where = random.randint(1, 16)
    fault = Fault(epoch, kind, worker)
    match kind:
        case "die":
            fault = replace(fault, at=where, times=random.choice((1, 1, 2, 3)))
        case "hang":
            fault = replace(fault, at=where, times=random.choice((0, 0, 1, 2, 5)))
        case "driver":
            point = random.choice(DRIVER_POINTS)
            fault = replace(fault, at=1 + where % COUNTED.get(point, 1), point=point)
        case "host":
            fault = replace(fault, at=random.randint(0, 1))
        case "lose":
            fault = replace(fault, at=random.choice((0, 0, where, RESTART)), point=_place(random, drawn))
        case "stale":
            fault = replace(fault, times=random.randint(2, 7))
        case "flip":
            fault = replace(fault, times=random.randint(1, 4), point=_place(random, drawn))
    return fault


def _place(random: Random, drawn: Parameters) -> str:
    return REPLICAS if drawn.mechanism in _NEEDS_FILES and random.random() < 0.4 else ""

"""When the faults of a run strike, and what attempts may not do meanwhile."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from chaos.cluster import Cluster
from chaos.damage import Damage
from chaos.driver import SimulatedDriver
from chaos.fibers import Killed
from chaos.host_troubles import HostTroubles
from chaos.network import Network
from chaos.oracle import Attempts
from chaos.parameters import RESTART, Fault, Parameters
from chaos.violation import Violation
from impls.errors import StateError
from impls.store.environment import Store, read_meta


class Troubles:
    """Carries out the faults of a run and watches what attempts write and take away.

    Attributes:
        epoch: the epoch that is run.
        damage: what befalls environments and files.
        attempts: what the attempts of every epoch wrote.
    """

    def __init__(self, parameters: Parameters, cluster: Cluster, folder: Path, driver: Callable[[], SimulatedDriver]):
        self._p, self._cluster, self._driver, self._state = parameters, cluster, driver, folder / "state"
        self.epoch = 0
        self.damage = Damage(self.home, folder / "copies", Random(parameters.seed + 6))
        self.network = Network(parameters, cluster, self.complain)
        self._hosts = (
            HostTroubles(parameters, cluster, self.network, self._state, self.damage) if cluster.hosts else None
        )
        self.attempts = Attempts()
        self._broken: Violation | None = None
        self._come: Counter[tuple[int, str]] = Counter()

    def _due(self, *kinds: str) -> list[Fault]:
        fired = self._cluster.fired
        return [f for f in self._p.faults if f.epoch == self.epoch and f.kind in kinds and f not in fired]

    def home(self, worker: int) -> Path:
        """Returns the state folder of the host where a worker's environment is."""
        hosts = self._cluster.hosts
        return self._state / self._driver().controller.homes.get(worker, hosts.names[0]) if hosts else self._state

    def _workers(self) -> int:
        controller = self._driver().controller
        return 1 + int(max(controller.routing.max(), controller.location.max()))

    # -- the driver and the host --------------------------------------------------------------------------------------

    def hook(self, point: str, _context: dict[str, Any]) -> None:
        """A named point of the driver, or of the attempt that runs."""
        if self._cluster.current is not None:
            self._cluster.point(point)
            return
        self._come[self.epoch, point] += 1
        for fault in self._due("driver"):
            if fault.point == point and fault.at == self._come[self.epoch, point]:
                self._die(fault)

    def _die(self, fault: Fault) -> None:
        self._cluster.fired.append(fault)
        raise Killed

    def on_step(self, _epoch: int, step: int) -> None:
        """Before each step of a stage environments may be damaged, and the driver may die."""
        self.raise_broken()
        self.strike(step)
        for fault in self._due("driver"):
            if fault.point == "job" and fault.at == step:
                self._die(fault)

    def host_dies(self, *, committed: bool) -> bool:
        """The host dies, if it is to die now: every process with it, and the last frames are torn."""
        for fault in self._due("host"):
            if bool(fault.at) == committed:
                self._cluster.fired.append(fault)
                self._cluster.kill_all()
                files = self._driver().files
                assert files is not None, "no host dies where nothing survives it"
                self.damage.tear(files, self.epoch, self._driver().record.written.workers)
                return True
        return False

    # -- environments -------------------------------------------------------------------------------------------------

    def strike(self, step: int) -> None:
        """Damages what is to be damaged at a step of the stage, 0 before it, RESTART while no driver runs."""
        for fault in self._due("lose", "stale", "flip"):
            if fault.at == step and self.damage.strike(fault, fault.worker % self._workers()):
                self._cluster.fired.append(fault)
        if self._hosts is not None:
            if step == 0:
                self._hosts.begin(self.epoch, self._driver().controller.homes)
            self._hosts.strike(self.epoch, step)

    def strike_idle(self) -> None:
        """Damages what is to be damaged between two drivers."""
        self.strike(RESTART)

    def keep_copies(self) -> None:
        """Keeps the environments that a later fault brings back."""
        for fault in self._p.faults:
            if fault.kind == "stale":
                self.damage.keep(fault, self.epoch, fault.worker % self._workers())

    # -- what attempts may not do -------------------------------------------------------------------------------------

    def wiped(self, path: Path) -> None:
        """An attempt takes an environment away: never one that is ahead of it."""
        attempt = self._cluster.current
        try:
            with Store.open(path, create=False) as store, store.reading() as txn:
                meta = read_meta(txn)
        except StateError:
            return
        if attempt is not None and meta is not None and meta.epoch > attempt.epoch:
            what = (
                f"an attempt of epoch {attempt.epoch} takes away worker {attempt.worker}'s state of epoch {meta.epoch}"
            )
            self.complain(Violation("zombie", what))

    def wrote(self, name: str, data: bytes) -> None:
        """An attempt writes a file: never another one than an attempt before."""
        if self._cluster.current is None:
            return
        try:
            self.attempts.wrote(name, data)
        except Violation as error:
            self.complain(error)

    def complain(self, violation: Violation) -> None:
        """Takes in what an attempt does that may not be; the first of them ends the run."""
        self._broken = self._broken or violation

    def raise_broken(self) -> None:
        """Raises the violation that an attempt has committed, if one has."""
        if self._broken is not None:
            raise self._broken

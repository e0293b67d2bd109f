"""When hosts, their executors, servers and links fail, and when they come back."""

import shutil
from pathlib import Path

from chaos.cluster import Cluster
from chaos.damage import Damage
from chaos.host_parameters import EMPTY, HOST_KINDS, REACHES
from chaos.hosts import Hosts
from chaos.network import Network
from chaos.parameters import Fault, Parameters


class HostTroubles:
    """Carries out the faults of a run that befall hosts."""

    def __init__(self, parameters: Parameters, cluster: Cluster, network: Network, state: Path, damage: Damage):
        assert cluster.hosts is not None, "there are hosts"
        self._p, self._cluster, self._network, self._state, self._damage = parameters, cluster, network, state, damage
        self._hosts: Hosts = cluster.hosts
        self._emptied: set[str] = set()

    def begin(self, epoch: int, homes: dict[int, str]) -> None:
        """Hosts whose time is over come back before an epoch, and links are mended."""
        for host in [host for host, back in self._hosts.back.items() if back <= epoch]:
            del self._hosts.back[host]
            if host in self._emptied:
                self._emptied.remove(host)
                shutil.rmtree(self._state / host, ignore_errors=True)
                self._damage.hurt |= {worker for worker, home in homes.items() if home == host}
        broken = [f for f in self._p.faults if f.kind == "link" and f.epoch <= epoch <= f.epoch + f.times]
        self._network.breaks = {self._named(fault): fault.at for fault in broken}
        self._cluster.fired += [fault for fault in broken if fault not in self._cluster.fired]

    def strike(self, epoch: int, step: int) -> None:
        """Strikes at a step of the stage, 0 before it, RESTART while no driver runs."""
        for fault in self._p.faults:
            due = fault.epoch == epoch and fault.at == step and fault not in self._cluster.fired
            if due and fault.kind in HOST_KINDS and fault.kind != "link" and self._befalls(fault):
                self._cluster.fired.append(fault)

    def _named(self, fault: Fault) -> str:
        return self._hosts.names[fault.worker % len(self._hosts.names)]

    def _befalls(self, fault: Fault) -> bool:
        """Carries a fault out and returns whether it could: the last host that is reached stays."""
        host, hosts = self._named(fault), self._hosts
        if fault.kind == "join":
            hosts.join()
            return True
        if host in hosts.back:
            return False
        if fault.kind == "server":
            self._network.end(host)
            return True
        if fault.kind != "executor":
            if hosts.reached == [host]:
                return False
            hosts.back[host] = fault.epoch + fault.times
        hosts.lives[host] += 1
        if fault.point == EMPTY:
            self._emptied.add(host)
        if fault.kind == "cut":
            self._cluster.lose(host, wakes=fault.epoch if fault.point == REACHES else hosts.back[host])
        else:
            self._network.end(host)
            self._cluster.lose(host)
        return True

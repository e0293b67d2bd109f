"""What happens to environments and files behind the workers' backs."""

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

from chaos.pages import leaf_nodes
from chaos.parameters import REPLICAS, Fault
from impls.durability.files import Files
from impls.durability.frame import FOLDER, frame_name
from impls.store.environment import Store, store_path
from impls.worker.replicas import replica_path

_IN_KEYS = 0.4


class Damage:
    """Carries out faults of kinds lose, stale, flip and host.

    Attributes:
        hurt: workers whose environment is not what it was when they last committed.
        flipped: whether any bit was flipped: damage that nobody has read yet may be anywhere from then on.
    """

    def __init__(self, home: Callable[[int], Path], copies: Path, random: Random):
        self._home, self._copies, self._random = home, copies, random
        self.hurt: set[int] = set()
        self.flipped = False

    def keep(self, fault: Fault, epoch: int, worker: int) -> None:
        """Copies an environment that a later fault brings back."""
        source = store_path(self._home(worker), worker)
        if fault.epoch - fault.times == epoch and source.exists():
            shutil.copytree(source, self._copies / str(worker), dirs_exist_ok=True)

    def strike(self, fault: Fault, worker: int) -> bool:
        """Damages a worker's environment, or that of its replicas, and returns whether there was one."""
        replicas = fault.point == REPLICAS
        path = replica_path(self._home(worker), worker) if replicas else store_path(self._home(worker), worker)
        if not (path / "data.mdb").exists():
            return False
        if fault.kind == "lose":
            shutil.rmtree(path)
        elif fault.kind == "stale":
            copy = self._copies / str(worker)
            if not copy.exists():
                return False
            shutil.rmtree(path)
            copy.rename(path)
        else:
            flip(path, fault.times, self._random)
            self.flipped = True
        if not replicas:
            self.hurt.add(worker)
        return True

    def tear(self, files: Files, epoch: int, workers: int) -> int:
        """Cuts the changelog frames of an epoch as the failure of a host may leave them; returns how many."""
        torn = 0
        for worker in range(workers):
            path = Path(files.path(frame_name(epoch, worker)))
            if path.exists() and self._random.random() < 0.6:
                raw = path.read_bytes()
                path.write_bytes(raw[: self._random.randrange(len(raw))])
                torn += 1
        return torn


def flip(path: Path, times: int, random: Random) -> None:
    """Flips bits of stored keys and values, wherever in the file an item is; never of LMDB's own structure."""
    with Store.open(path, create=False) as store, store.reading() as txn:
        tables, page_bytes = defaultdict(list), int(store.env.stat()["psize"])
        for name, value in txn.cursor().iternext():
            tables[bytes(name)[:1]].append((bytes(name), bytes(value)))
    file = path / "data.mdb"
    before = file.read_bytes()
    raw, nodes = bytearray(before), list(leaf_nodes(before, page_bytes))
    for _ in range(times if tables else 0):
        item = random.choice(tables[random.choice(sorted(tables))])
        in_key = random.random() < _IN_KEYS or not item[1]
        bit = random.randrange(8 * len(item[0] if in_key else item[1]))
        for node in nodes:
            if (node.key(before), node.value(before)) == item:
                raw[(node.key_at if in_key else node.value_at) + bit // 8] ^= 1 << bit % 8
    with file.open("r+b") as opened:
        opened.write(raw)


def log_epochs(files: Files) -> set[int]:
    """Returns the epochs of which there are changelog frames."""
    return {int(name.rpartition("/")[2].partition("-")[0]) for name, _ in files.names(FOLDER)}

"""What happens to environments and files behind the workers' backs."""

import shutil
from pathlib import Path
from random import Random

from chaos.parameters import Fault
from impls.durability.files import Files
from impls.durability.frame import FOLDER, frame_name
from impls.runtime.store import DENSE, META, OUTBOX, QUEUE, STATE, Store, store_path

_FLIPPED = (META, STATE, QUEUE, OUTBOX, DENSE)


class Damage:
    """Carries out faults of kinds lose, stale, flip and host.

    Attributes:
        hurt: workers whose environment is not what it was when they last committed.
        flipped: whether any bit was flipped: damage that nobody has read yet may be anywhere from then on.
    """

    def __init__(self, state_dir: Path, copies: Path, random: Random):
        self._state, self._copies, self._random = state_dir, copies, random
        self.hurt: set[int] = set()
        self.flipped = False

    def keep(self, fault: Fault, epoch: int, worker: int) -> None:
        """Copies an environment that a later fault brings back."""
        source = store_path(self._state, worker)
        if fault.epoch - fault.times == epoch and source.exists():
            shutil.copytree(source, self._copies / str(worker), dirs_exist_ok=True)

    def strike(self, fault: Fault, worker: int) -> bool:
        """Damages a worker's environment and returns whether there was one."""
        path = store_path(self._state, worker)
        if not path.exists():
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
            self._flip(path, fault.times)
            self.flipped = True
        self.hurt.add(worker)
        return True

    def _flip(self, path: Path, times: int) -> None:
        """Flips bits of stored values, wherever in the file a copy of the value is; never of LMDB's own structure."""
        with Store.open(path, create=False) as store, store.reading() as txn:
            items = [(bytes(k), bytes(v)) for k, v in txn.cursor().iternext() if bytes(k)[:1] in _FLIPPED and len(v)]
        file = path / "data.mdb"
        raw = bytearray(file.read_bytes())
        for _ in range(times):
            name, value = self._random.choice(items)
            bit = self._random.randrange(8 * len(value))
            for at in _places(raw, name, value):
                raw[at + bit // 8] ^= 1 << bit % 8
        with file.open("r+b") as opened:
            opened.write(raw)

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


def _places(raw: bytearray, name: bytes, value: bytes) -> list[int]:
    """Returns where a record's value is: behind its name, or, for a long value, at the beginning of pages."""
    found, start = [], 0
    whole = name + value if len(value) <= 2000 else value
    while (at := raw.find(whole, start)) >= 0:
        found.append(at + len(whole) - len(value))
        start = at + 1
    return found


def log_epochs(files: Files) -> set[int]:
    """Returns the epochs of which there are changelog frames."""
    return {int(name.rpartition("/")[2].partition("-")[0]) for name, _ in files.names(FOLDER)}

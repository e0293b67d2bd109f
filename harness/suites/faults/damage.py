"""Faults of files and disks: environments, changelog and snapshots lost or damaged, a disk full or read-only."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from generators.clock import now_us
from harness.files import read_json
from harness.lab.processes import processes_of
from harness.suites.faults.process_faults import COMMAND_DEADLINE_S, FaultEffect, MissedError
from harness.suites.faults.schedule import Fault
from harness.suites.faults.site import BINS, Site
from harness.suites.faults.storage import flip_bit, limit_files, lose, newest_frame, snapshot_in_use, truncate
from impls.durability.frame import frame_name
from impls.store.environment import store_path

__all__ = [
    "damage_environment",
    "damage_frame",
    "damage_snapshot",
    "full_disk",
    "lose_state",
    "read_only_disk",
    "torn_frame",
]

_SNAPSHOT_DEADLINE_S = 60.0
_SETTLE_DEADLINE_S = 90.0
_SPOIL: dict[str, Callable[[Path, int], None]] = {"truncated": truncate, "torn": truncate, "flipped": flip_bit}


def damage_environment(site: Site, fault: Fault) -> FaultEffect:
    """Loses or damages one worker's environment while the query runs."""
    _migrate_if_asked(site, fault)
    folder, at_us = store_path(site.state, fault.draw % 2), now_us()
    if fault.point == "lost":
        lose(folder)
    else:
        _SPOIL[fault.point](folder / "data.mdb", fault.draw)
    return FaultEffect(at_us, again=True, recovers=fault.point != "flipped")  # a bit that nobody reads goes unnoticed


def lose_state(site: Site, fault: Fault) -> FaultEffect:
    """Loses the environments of all workers while the query is down."""
    _migrate_if_asked(site, fault)
    site.query.crash()
    at_us = now_us()
    _lose_all(site)
    return FaultEffect(at_us, recovers=True)


def torn_frame(site: Site, fault: Fault) -> FaultEffect:
    """Cuts off a worker's newest changelog frame while the query is down; the environments are whole."""
    _migrate_if_asked(site, fault)
    site.query.crash()
    at_us = now_us()
    owners = site.owners(site.epochs()[-1]["epoch"])
    truncate(newest_frame(_durable(site), owners[fault.draw % len(owners)]), fault.draw)
    return FaultEffect(at_us)


def damage_frame(site: Site, fault: Fault) -> FaultEffect:
    """Damages a changelog frame that recovery needs, with all environments lost, while the query is down."""
    _migrate_if_asked(site, fault)
    site.held = True
    site.query.crash()
    epoch = site.epochs()[-1]["epoch"] - 1  # the last one may not be committed, and is then not needed
    owners = site.owners(epoch)
    return _refused(site, fault, _durable(site) / frame_name(epoch, owners[fault.draw % len(owners)]))


def damage_snapshot(site: Site, fault: Fault) -> FaultEffect:
    """Damages a snapshot that recovery needs, with all environments lost, while the query is down."""
    _migrate_if_asked(site, fault)

    def in_use() -> Path | None:
        query = read_json(_durable(site) / "query.json")["query"]
        return snapshot_in_use(_durable(site), query, BINS, fault.draw)

    site.await_true(lambda: in_use() is not None, "a snapshot", _SNAPSHOT_DEADLINE_S)
    site.held = True
    site.query.crash()
    file = in_use()
    if file is None:
        raise MissedError("No snapshot is in use.")
    return _refused(site, fault, file)


def full_disk(site: Site, fault: Fault) -> FaultEffect:
    """Fills the disk of the workers' state while the query needs more of it: two further workers come into being."""
    if site.workers > 2:
        site.migrate(COMMAND_DEADLINE_S)
        site.await_true(site.settled, "the workers to retire", _SETTLE_DEADLINE_S)
    site.held = True
    for worker in (2, 3):
        lose(store_path(site.state, worker))  # of retired workers: nobody's state, but space
    at_us = now_us()
    if site.disk.mounted:
        site.disk.fill()
    else:
        limit_files([pid for pid in processes_of(site.arming.file) if pid != site.query.pid], 1)
    site.migrate(COMMAND_DEADLINE_S)
    return FaultEffect(at_us, names=("No space left", "File too large"), repair=site.disk.free)


def read_only_disk(site: Site, fault: Fault) -> FaultEffect:
    """Makes the disk of the workers' state read-only."""
    _migrate_if_asked(site, fault)
    site.held = True
    at_us = now_us()
    site.disk.forbid_writing(site.tend)
    return FaultEffect(at_us, names=("Read-only", "read-only", "ermission denied"), repair=site.disk.allow_writing)


def _refused(site: Site, fault: Fault, file: Path) -> FaultEffect:
    copy = site.folder / "copy"
    shutil.copyfile(file, copy)
    _SPOIL[fault.point](file, fault.draw)
    _lose_all(site)
    at_us = now_us()
    site.begin_fault()
    site.held = True
    site.query.start()
    return FaultEffect(at_us, recovers=True, names=(file.name,), repair=partial(_restore, copy, file))


def _restore(copy: Path, file: Path) -> None:
    copy.replace(file)


def _lose_all(site: Site) -> None:
    for folder in site.state.glob("worker-*"):
        lose(folder)


def _durable(site: Site) -> Path:
    return site.checkpoint / "rescale"


def _migrate_if_asked(site: Site, fault: Fault) -> None:
    if fault.phase == "migrating":
        site.migrate(COMMAND_DEADLINE_S)

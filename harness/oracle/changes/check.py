"""A key-count whose pipeline changes, judged record by record: a pure function from columns to what is not right.

The property: every record is listed by exactly one result, and computed by the code of the version that its bin ran
under then; or no result lists it, and that version's filter leaves it out. In each partition of the input the versions
of a bin's records follow each other in order, so that each change has one boundary per bin and partition, an offset.
What a result says of the key's state is the number of records listed so far. In micro-batches the epoch that lists a
record is the one that brought it, or the one that released the queue of its moving bin, and both had the same version.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.oracle.changes.columns import Findings, Listed, Lists, Plans, accepted, leaves_out
from harness.oracle.columns import BinOf, MovedBins, Ranges, Records, Waits
from harness.oracle.verdict import CLASSES, Differences

_NOBODY = -1

Boundaries = dict[int, dict[int, dict[int, int]]]
"""version -> partition -> bin -> offset of the bin's first record under the version."""


@dataclass(frozen=True)
class Judged:
    """What was found, and where each version begins."""

    found: Differences
    boundaries: Boundaries


@dataclass(frozen=True)
class _Context:
    """What the parts of the check share: the records with their bins, the versions, and where findings go."""

    records: Records
    bins: NDArray[np.int64]
    plans: Plans
    found: Findings

    def where(self, row: int) -> dict[str, int]:
        own = self.records
        return {"key": own.key[row], "partition": own.partition[row], "offset": own.offset[row]}


def check(
    records: Records,
    results: Listed,
    plans: Plans,
    *,
    bin_of: BinOf,
    partitions: int,
    ranges: Ranges | None = None,
    moves: MovedBins | None = None,
    waits: Waits | None = None,
) -> Judged:
    """Compares results with the input and the versions.

    Args:
        records: the whole input topic.
        results: the whole results topic, repeats included.
        plans: the versions, and where each held.
        bin_of: bins of keys, array to array.
        partitions: of the results topic.
        ranges: offsets of each committed epoch; None in real time.
        moves: bins that changed their owner, with the epoch.
        waits: bins with queued records at the end of an epoch.

    Raises:
        OracleError: a result has another form.
    """
    asked = _Context(records, bin_of(records.key), plans, Findings())
    lists = accepted(results, bin_of, partitions, asked.found)
    known = plans.candidates(lists.epoch, bin_of(lists.key))
    counted, at = _listed(asked, lists, known)
    _check_state(asked, lists, known)
    arrived = None if ranges is None else _arrival(records, ranges)
    if arrived is not None:
        _check_epochs(asked, arrived, at, waits or Waits.of([]))
    under, boundaries = _versions(asked, counted, arrived)
    crossed = _crossed(asked, under, at, moves or MovedBins.of([]))
    waited = 0 if arrived is None else int(((at > arrived) & (at >= 0)).sum())
    totals = {kind: asked.found.totals[kind] for kind in CLASSES}
    repeats = len(results) - len(lists.key)
    found = Differences(totals, asked.found.examples, len(records), len(lists.key), repeats, crossed, waited)
    return Judged(found, boundaries)


_Counted = tuple[list[int], int, int]
"""By what a record was counted: the versions that can have done it, shape and label."""


def _listed(asked: _Context, lists: Lists, known: list[list[int]]) -> tuple[list[_Counted | None], NDArray[np.int64]]:
    """Returns by what each record was counted, None for nothing, and in which epoch, -1 for none."""
    records, found = asked.records, asked.found
    parts = int(records.partition.max(initial=-1)) + 1
    base = np.searchsorted(records.partition, np.arange(parts + 1))
    first = np.array([records.offset[b] if b < len(records) else 0 for b in base], np.int64)
    counted: list[_Counted | None] = [None] * len(records)
    at = np.full(len(records), _NOBODY, np.int64)
    before: dict[tuple[int, int], int] = {}
    keys, epochs, shapes = lists.key.tolist(), lists.epoch.tolist(), lists.header[:, 0].tolist()
    names = (lists.entries["partition"], lists.entries["offset"], lists.entries["label"], lists.result)
    for part, offset, label, result in zip(*(column.tolist() for column in names), strict=True):
        key, epoch = keys[result], epochs[result]
        where = {"epoch": epoch, "key": key, "partition": part, "offset": offset}
        row = int(base[part] + offset - first[part]) if part < parts else len(records)
        if part >= parts or not base[part] <= row < base[part + 1] or records.key[row] != key:
            found.add("wrong", "lists a record that is not the key's", **where)
            continue
        if counted[row] is not None:
            found.add("doubled", "a second result lists the record", **where)
            continue
        if before.get((key, part), -1) > offset:
            found.add("out_of_order", "behind a later record of the key", **where)
        before[key, part] = offset
        counted[row], at[row] = (known[result], shapes[result], label), epoch
    return counted, at


def _check_state(asked: _Context, lists: Lists, known: list[list[int]]) -> None:
    """Holds what results say of their key's state against the records listed so far."""
    eras, codes, found = asked.plans.eras, asked.plans.codes, asked.found
    totals: dict[int, int] = {}
    since: dict[tuple[int, int], int] = {}
    rows = zip(
        lists.key.tolist(), lists.epoch.tolist(), lists.header.tolist(), lists.lengths.tolist(), known, strict=True
    )
    for key, epoch, (shape, total, young), length, versions in rows:
        wanted = totals.get(key, 0) + length
        totals[key] = total
        if total != wanted:
            kind, why = (
                ("lost", "the state lacks records that were listed before")
                if total < wanted
                else ("wrong", "the state has records that no result has listed")
            )
            found.add(kind, why, epoch=epoch, key=key, expected=wanted, found=total)
        mine = [version for version in versions if codes[version].shape == shape]
        if shape == 2 and mine and len({eras[version] for version in mine}) == 1:
            version = mine[-1]
            young_wanted = since[key, eras[version]] = since.get((key, eras[version]), 0) + length
            if young != young_wanted:
                why = "the state has another number of records since its shape changed"
                found.add("wrong", why, epoch=epoch, key=key, expected=young_wanted, found=young)


def _arrival(records: Records, ranges: Ranges) -> NDArray[np.int64]:
    """Returns the epoch that brought each record, -1 where none did."""
    out = np.full(len(records), _NOBODY, np.int64)
    for part in np.unique(records.partition).tolist():
        rows, mine = np.flatnonzero(records.partition == part), np.flatnonzero(ranges.partition == part)
        if not len(mine):
            continue
        mine = mine[np.argsort(ranges.begin[mine])]
        place = np.searchsorted(ranges.begin[mine], records.offset[rows], side="right") - 1
        inside = (place >= 0) & (records.offset[rows] < ranges.end[mine][place])
        out[rows[inside]] = ranges.epoch[mine][place[inside]]
    return out


def _check_epochs(asked: _Context, arrived: NDArray[np.int64], at: NDArray[np.int64], waits: Waits) -> None:
    """Finds records that another epoch lists than may, and those whose version changed while they were queued."""
    waiting = zip(waits.epoch.tolist(), waits.bin.tolist(), strict=True)
    release = dict(zip(waiting, waits.release.tolist(), strict=True))
    for row in np.flatnonzero((at >= 0) & (at != arrived)).tolist():
        where = {**asked.where(row), "epoch": at[row], "expected": arrived[row]}
        bin_ = asked.bins[row]
        if release.get((int(arrived[row]), int(bin_))) != int(at[row]):
            asked.found.add("wrong", "listed by another epoch than the one that brought it", **where)
            continue
        both = asked.plans.versions(np.array([arrived[row], at[row]]), np.repeat(bin_, 2))
        if both[0] != both[1]:
            asked.found.add("wrong", "the version of its bin changed while the record was queued", **where)


def _versions(
    asked: _Context, counted: list[_Counted | None], arrived: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], Boundaries]:
    """Returns the version of each record, -1 for none, and where each begins.

    Those of a bin follow each other in order in each partition; what has none is a finding.
    """
    plans, bins = asked.plans, asked.bins
    brought = [None] * len(bins) if arrived is None else plans.versions(arrived, bins).tolist()
    offsets, places = (
        asked.records.offset.tolist(),
        list(zip(bins.tolist(), asked.records.partition.tolist(), strict=True)),
    )
    allowed = [
        list(_leaving_out(plans, offset, before) if by is None else _counting(plans, offset, *by))
        for offset, by, before in zip(offsets, counted, brought, strict=True)
    ]
    most = _latest(places, allowed, counted)
    under, boundaries = np.full(len(bins), _NOBODY, np.int64), Boundaries()
    now: dict[tuple[int, int], int] = {}
    for row, (place, versions) in enumerate(zip(places, allowed, strict=True)):
        highest = most[row] if counted[row] is None else max(versions, default=0)
        fitting = [version for version in versions if now.get(place, 0) <= version <= highest]
        if not fitting:
            kind, why = _why(versions, counted[row])
            asked.found.add(kind, why, **asked.where(row))
            continue
        under[row] = version = min(fitting)
        if now.get(place) != version:
            now[place] = version
            boundaries.setdefault(version, {}).setdefault(place[1], {})[place[0]] = offsets[row]
    return under, boundaries


def _latest(places: list[tuple[int, int]], allowed: list[list[int]], counted: list[_Counted | None]) -> list[int]:
    """Returns the latest version that a record can have had for what was counted behind it in its place."""
    latest: dict[tuple[int, int], int] = {}
    out = [0] * len(places)
    for row in range(len(places) - 1, -1, -1):
        out[row] = latest.get(places[row], len(places))
        if counted[row] is not None and allowed[row]:
            latest[places[row]] = min(out[row], max(allowed[row]))
    return out


def _why(allowed: list[int], by: _Counted | None) -> tuple[str, str]:
    """Returns class and words of a record that no version explains; `allowed` could, but for those around it."""
    order = ", or by an earlier one than the record before it" if allowed else ""
    if by is None:
        return "lost", f"no result lists the record, and its version keeps it{order and ', as those around it say'}"
    return "wrong", f"computed by another code than that of its version{order}"


def _leaving_out(plans: Plans, offset: int, brought: int | None) -> Iterator[int]:
    """Yields the versions under which a record that nothing lists can have been left out."""
    known: Iterable[int] = range(len(plans.codes)) if brought in {None, _NOBODY} else [int(brought or 0)]
    yield from (version for version in known if leaves_out(plans.codes[version], offset))


def _counting(plans: Plans, offset: int, versions: list[int], shape: int, label: int) -> Iterator[int]:
    """Yields those of the versions whose code counts a record so."""
    for number in versions:
        code = plans.codes[number]
        if (code.shape, code.label) == (shape, label) and not leaves_out(code, offset):
            yield number


def _crossed(asked: _Context, under: NDArray[np.int64], at: NDArray[np.int64], moves: MovedBins) -> dict[str, int]:
    """Returns by change the records under its version, and by migration those of moved bins from their move on."""
    bins, plans = asked.bins, asked.plans
    out = {id_: int((under == number).sum()) for number, id_ in enumerate(plans.ids, 1)}
    for name in np.unique(moves.migration).tolist():
        mine = moves.migration == name
        first = np.full(int(bins.max(initial=0)) + 1, np.iinfo(np.int64).max, np.int64)
        inside = mine & (moves.bin < len(first))
        np.minimum.at(first, moves.bin[inside], moves.epoch[inside])
        out[str(name)] = int((at >= first[bins]).sum())
    return out

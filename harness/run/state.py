"""What `./inv state` does: shows, writes and compares the state in a checkpoint."""

import json
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.options import ending
from impls.driver.control import ask_if_running
from impls.driver.keystate import StateRow
from impls.durability.whole import made_whole
from impls.errors import UsageError
from impls.reading.state import StateAt, state_at
from impls.reading.texts import differences, fields_of, is_of_key, json_text, write_parquet


@ending("No state was read.")
def run_state(
    checkpoint: str, epoch: int | None, log_dir: str | None, *, key: str | None, into: str | None,
    against: int | None, as_json: bool, limit: int,
) -> int:  # fmt: skip
    """Reads a checkpoint's state at the end of an epoch as the options say, and returns the exit code."""
    if into is not None and (key is not None or against is not None or as_json):
        raise UsageError("--into writes all rows: leave out --key, --against and --json.")
    if key is not None and all(given is None for given in (epoch, log_dir, against)):
        live = ask_if_running(checkpoint, {"do": "state", "key": key})
        if live is not None:
            return _show_live(live, key, as_json=as_json)
    with state_at(checkpoint, epoch, log_dir=log_dir) as state:
        if against is not None:
            with state_at(checkpoint, against, log_dir=log_dir) as before:
                return _compare(before, state, key, as_json=as_json, limit=limit)
        if into is not None:
            return _write(state, Path(into))
        rows = state.every_row() if key is None else (row for row in state.every_row() if is_of_key(row, key))
        if not as_json:
            return _show(rows, state, key, limit)
        for row in rows:
            _line(fields_of(row))
        return 0


def _show_live(live: Mapping[str, Any], key: str, *, as_json: bool) -> int:
    """Prints what a query that runs has answered, lines of JSON or a table."""
    rows = live["rows"]
    if as_json:
        for row in rows:
            _line(row)
        return 0
    print_table(_NAMES, [[_live_text(row, name) for name in _NAMES] for row in rows], words=_NAMES[1:])
    what = f"{len(rows):,} rows" if rows else f"The key {key} has no state"
    sys.stdout.write(f"{what} as of the last commit, which has all of epoch {live['epoch']}\n")
    return 0


def _live_text(row: Mapping[str, Any], name: str) -> str:
    if name in {"kind", "name"} or name not in row:
        return str(row.get(name, ""))
    return json_text(row[name])


def _write(state: StateAt, into: Path) -> int:
    with made_whole(into) as folder:
        number = write_parquet(state, folder / "state.parquet")
    sys.stdout.write(f"{number:,} rows at the end of epoch {state.epoch}\n{into / 'state.parquet'}\n")
    return 0


def _show(rows: Iterable[StateRow], state: StateAt, key: str | None, limit: int) -> int:
    """Prints the first rows as a table, all those of a key, and how many there are."""
    shown, number, keys = list[StateRow](), 0, set[str]()
    for row in rows:
        number += 1
        keys.add(json_text(row.key))
        if len(shown) < limit or key is not None:
            shown.append(row)
    print_table(_NAMES, [[*_place(row), json_text(row.value)] for row in shown], words=_NAMES[1:])
    waiting = f" ({state.queued:,} records wait in queues)" if state.queued else ""
    where = f"at the end of epoch {state.epoch}{waiting}"
    if key is not None and not number:
        sys.stdout.write(f"The key {key} has no state {where}.\n")
        return 0
    left = f"; the first {len(shown):,} are shown, --json shows all" if number > len(shown) else ""
    sys.stdout.write(f"{number:,} rows of {len(keys):,} keys {where}{left}\n")
    return 0


_NAMES = ("bin", "key", "kind", "name", "field", "value")


def _place(row: StateRow) -> list[str]:
    """Returns the texts of what names a row."""
    return [str(row.bin), json_text(row.key), row.kind, row.name, "" if row.field is None else json_text(row.field)]


def print_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, words: Container[str]) -> None:
    """Prints a table of users' texts, nothing where it has no row; columns that are not words have numbers."""
    table = Table(box=None)
    for name in names:
        table.add_column(name, justify="left" if name in words else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        Console(markup=False, highlight=False).print(table)


def _line(fields: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(fields, ensure_ascii=False)}\n")


def _compare(before: StateAt, after: StateAt, key: str | None, *, as_json: bool, limit: int) -> int:
    """Prints what differs between two epochs: lines of JSON, or a table of the first, and how many there are."""
    rows, number = list[list[str]](), {"new": 0, "gone": 0, "changed": 0}
    for old, new in differences(before, after):
        row, what = new or old, "new" if old is None else "gone" if new is None else "changed"
        assert row is not None, "a difference has a row in one of the epochs"
        if key is not None and not is_of_key(row, key):
            continue
        number[what] += 1
        if as_json:
            place, both = fields_of(row), {"before": old, "after": new}
            del place["value"]
            values = {side: fields_of(one)["value"] for side, one in both.items() if one is not None}
            _line({"what": what, **place, **values})
        elif len(rows) < limit:
            rows.append([what, *_place(row)[1:], *("" if one is None else json_text(one.value) for one in (old, new))])
    if as_json:
        return 0
    names = ("", *_NAMES[1:-1], f"epoch {before.epoch}", f"epoch {after.epoch}")
    print_table(names, rows, words=names)
    counts = ", ".join(f"{count:,} {what}" for what, count in number.items())
    left = "; --json shows all" if sum(number.values()) > len(rows) else ""
    sys.stdout.write(f"rows from the end of epoch {before.epoch} to that of epoch {after.epoch}: {counts}{left}\n")
    return 0

"""What `./inv state` does: shows, writes and compares the state in a checkpoint."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.options import ending
from impls.durability.whole import made_whole
from impls.errors import UsageError
from impls.reading.forms import StateRow
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
    with state_at(checkpoint, epoch, log_dir=log_dir) as state:
        if against is not None:
            with state_at(checkpoint, against, log_dir=log_dir) as before:
                return _compare(before, state, key, as_json=as_json, limit=limit)
        if into is not None:
            return _write(state, Path(into))
        rows = state.every_row() if key is None else (row for row in state.every_row() if is_of_key(row, key))
        return _show(rows, state, key, as_json=as_json, limit=limit)


def _write(state: StateAt, into: Path) -> int:
    with made_whole(into) as folder:
        number = write_parquet(state, folder / "state.parquet")
    sys.stdout.write(f"{number:,} rows at the end of epoch {state.epoch}\n{into / 'state.parquet'}\n")
    return 0


def _show(rows: Iterable[StateRow], state: StateAt, key: str | None, *, as_json: bool, limit: int) -> int:
    """Prints all rows as lines of JSON, or the first ones as a table, and how many there are."""
    shown, number, keys = list[StateRow](), 0, set[str]()
    for row in rows:
        number += 1
        keys.add(json_text(row.key))
        if as_json:
            sys.stdout.write(f"{json.dumps(fields_of(row), ensure_ascii=False)}\n")
        elif len(shown) < limit or key is not None:
            shown.append(row)
    if as_json:
        return 0
    if shown:
        Console(markup=False, highlight=False).print(_table(shown))
    where = f"at the end of epoch {state.epoch}"
    if key is not None and not number:
        sys.stdout.write(f"The key {key} has no state {where}.\n")
        return 0
    left = f"; the first {len(shown):,} are shown, --json shows all" if number > len(shown) else ""
    sys.stdout.write(f"{number:,} rows of {len(keys):,} keys {where}{left}\n")
    return 0


def _table(rows: Iterable[StateRow]) -> Table:
    table = Table(box=None)
    for name in ("bin", "key", "kind", "name", "field", "value"):
        table.add_column(name, justify="right" if name == "bin" else "left", overflow="fold")
    for row in rows:
        field = "" if row.field is None else json_text(row.field)
        table.add_row(str(row.bin), json_text(row.key), row.kind, row.name, field, json_text(row.value))
    return table


def _compare(before: StateAt, after: StateAt, key: str | None, *, as_json: bool, limit: int) -> int:
    """Prints what differs between two epochs: lines of JSON, or a table of the first, and how many there are."""
    table, number = Table(box=None), {"new": 0, "gone": 0, "changed": 0}
    for name in ("", "key", "kind", "name", "field", f"epoch {before.epoch}", f"epoch {after.epoch}"):
        table.add_column(name, overflow="fold")
    for old, new in differences(before, after):
        row, what = new or old, "new" if old is None else "gone" if new is None else "changed"
        assert row is not None, "a difference has a row in one of the epochs"
        if key is not None and not is_of_key(row, key):
            continue
        number[what] += 1
        if as_json:
            values = {"before": old, "after": new}
            told = {name: fields_of(one)["value"] for name, one in values.items() if one is not None}
            place = {name: value for name, value in fields_of(row).items() if name != "value"}
            sys.stdout.write(f"{json.dumps({'what': what, **place, **told}, ensure_ascii=False)}\n")
        elif sum(number.values()) <= limit:
            field = "" if row.field is None else json_text(row.field)
            values_ = ["" if one is None else json_text(one.value) for one in (old, new)]
            table.add_row(what, json_text(row.key), row.kind, row.name, field, *values_)
    if as_json:
        return 0
    if table.row_count:
        Console(markup=False, highlight=False).print(table)
    counts = ", ".join(f"{count:,} {what}" for what, count in number.items())
    left = "; --json shows all" if sum(number.values()) > limit else ""
    sys.stdout.write(f"rows from the end of epoch {before.epoch} to that of epoch {after.epoch}: {counts}{left}\n")
    return 0

"""What `./inv history` does: shows the migrations of a checkpoint's query."""

import json
import sys
from datetime import UTC, datetime

from harness.options import ending
from harness.run.state import print_table
from impls.driver.history import migrations_in
from impls.driver.migrations import MigrationRecord

_COLUMNS = ("asked (UTC)", "cause", "what", "workers", "bins", "MB", "waiting s", "moving s", "draining s",
            "p99 before ms", "highest ms", "outcome")  # fmt: skip
_WORDS = {"asked (UTC)", "cause", "what", "outcome"}


@ending("No history was read.")
def run_history(checkpoint: str, *, as_json: bool, limit: int) -> int:
    """Prints the migrations, the last ones as a table or all as lines of JSON, and returns the exit code."""
    found = migrations_in(checkpoint)
    if as_json:
        sys.stdout.writelines(f"{json.dumps(one.to_json(), ensure_ascii=False)}\n" for one in found)
        return 0
    print_table(_COLUMNS, map(_row, found[-limit:]), words=_WORDS)
    left = f"; the last {limit:,} are shown, --json shows all" if len(found) > limit else ""
    sys.stdout.write(f"{len(found):,} migrations and losses of workers{left}\n")
    return 0


def _row(one: MigrationRecord) -> list[str]:
    asked = one.asked_us or one.begin_us
    workers = "" if one.workers_after is None else f"{one.workers_before} > {one.workers_after}"
    restored = f" ({one.restored_bins} restored)" if one.restored_bins else ""
    return [
        "" if asked is None else datetime.fromtimestamp(asked / 1e6, UTC).strftime("%m-%d %H:%M:%S"),
        one.cause,
        f"{one.label}: {one.why}" if one.why else one.label,
        workers,
        f"{one.moved_bins} of {one.planned_bins}{restored}" if one.cause != "loss" else f"{one.restored_bins} restored",
        f"{one.moved_bytes / 1e6:.1f}",
        *(_number(value, 2) for value in (one.waiting_s, one.moving_s, one.draining_s)),
        *(_number(value, 0) for value in (one.before_p99_ms, one.highest_ms)),
        one.outcome,
    ]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"

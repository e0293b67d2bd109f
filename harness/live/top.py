"""`./inv top`: a live view of a running query, which another process asks over the query's control channel."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.options import ending
from impls.driver.control import ask
from impls.errors import UsageError
from plots.metrics import plain

_MIB = 1 << 20
_BAR = 20
_WIDE = 72  # columns of a terminal from which on the table of workers has all of its own
_EVENTS = 6
_MICROS = 1_000_000


@ending()
def top(checkpoint: str, *, once: bool, as_json: bool, interval: float) -> int:
    """Shows a running query until it ends or Ctrl-C is pressed, and returns the exit code.

    Args:
        checkpoint: its checkpoint folder.
        once: shows it once.
        as_json: writes a line of JSON instead of each picture.
        interval: seconds from one picture to the next.

    Raises UsageError when no query runs on the checkpoint.
    """
    first = ask(checkpoint, {"do": "watch"})
    if as_json:
        for answer in _answers(checkpoint, first, 0.0 if once else interval):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        return 0
    console = Console(highlight=False)
    if once or not console.is_terminal:
        for answer in _answers(checkpoint, first, 0.0 if once else interval):
            console.print(frame_of(answer, console.width))
        return 0
    with Live(frame_of(first, console.width), console=console, screen=True, auto_refresh=False) as live:
        for answer in _answers(checkpoint, first, interval):
            live.update(frame_of(answer, console.width), refresh=True)
    console.print(f"The query {first['query']} has ended.")
    return 0


def _answers(checkpoint: str, first: dict[str, Any], interval: float) -> Iterator[dict[str, Any]]:
    """Yields what a query answers, one answer for each interval until it has ended; the first alone for 0 seconds."""
    yield first
    while interval:
        time.sleep(interval)
        try:
            answer = ask(checkpoint, {"do": "watch"})
        except UsageError:  # it answered before: it has ended
            return
        yield answer


def frame_of(answer: dict[str, Any], width: int) -> RenderableType:
    """Returns the picture of what a query has answered, for a terminal of so many columns."""
    status, metrics = answer["status"], answer["metrics"]
    lines = [*_head(answer["query"], status, metrics), *_migration(status, metrics), *_more(status)]
    events = [Text(_event(event), no_wrap=True, overflow="ellipsis") for event in metrics["events"][-_EVENTS:]]
    texts = [Text(line, overflow="fold") for line in lines]
    return Group(*texts, Text(""), _workers(status, metrics, width), *([Text("")] if events else []), *events)


def _head(query: str, status: dict[str, Any], metrics: dict[str, Any]) -> Iterator[str]:
    """Yields the lines about the query as a whole."""
    state = "running" if status["running"] else "ended"
    yield (
        f"{query}  {state}  epoch {status['epoch']} ({plain(metrics.get('epoch_ms'))} ms)  "
        f"generation {status['generation']}  {status['workers']} workers  {sum(status['bins'])} bins"
    )
    latency = metrics.get("latency_ms") or {}
    told = "  ".join(f"{name} {plain(latency[name], 1)}" for name in ("p50", "p99", "max") if name in latency)
    commits = f"  {plain(metrics['turns_per_s'])} commits/s" if metrics.get("turns_per_s") else ""
    yield (
        f"{plain(metrics.get('rate'))} records/s{commits}  {plain(metrics['records'])} records  "
        f"{plain(metrics['results'])} results  latency {f'{told} ms' if told else 'not measured'}"
    )
    yield (
        f"queue {plain(status['queued'])} records  state {_mib(metrics.get('state_bytes'))}  "
        f"durable {_mib(metrics.get('durable_bytes'))}  rebuilt {metrics['rebuilt']}  retries {metrics['retries']}"
    )


def _migration(status: dict[str, Any], metrics: dict[str, Any]) -> Iterator[str]:
    """Yields a line about the migration under way, or about the last one."""
    now, last = metrics.get("migration"), metrics.get("last_migration")
    if now:
        done = max(0, now["bins"] - now["left"])
        filled = round(_BAR * done / max(1, now["bins"]))
        bar = "#" * filled + "." * (_BAR - filled)
        yield (
            f"migration [{bar}] {done} of {now['bins']} bins  {_mib(now['moved_bytes'])}  "
            f"{now['seconds']:.1f} s  {now['label']}"
        )
    elif status["migrating"]:
        yield f"migration under way: {status['misplaced']} bins left"
    elif last:
        how = "gave way to a newer command" if last["superseded"] else "done"
        yield (
            f"last migration: {last['label']}: {how}, {last['moved_bins']} bins  {_mib(last['moved_bytes'])}  "
            f"{last['seconds']:.1f} s"
        )
    else:
        yield "no migration so far"


def _more(status: dict[str, Any]) -> Iterator[str]:
    """Yields lines about what not every query has."""
    if "watermark" in status:
        settled = "settled" if status["settled"] else "timers are under way"
        yield f"watermark {'none yet' if status['watermark'] is None else status['watermark']}  {settled}"
    if len(status["versions"]) > 1:
        yield "versions " + ", ".join(f"{version}: {bins} bins" for version, bins in status["versions"].items())
    if "autoscale" in status:
        scaled = status["autoscale"]
        reason = (scaled["last"] or {}).get("reason", "no decision yet")
        yield f"autoscale {scaled['policy']}, {scaled['min']} to {scaled['max']} workers: {reason}"


def _workers(status: dict[str, Any], metrics: dict[str, Any], width: int) -> Table:
    """Returns a row for each worker; a narrow terminal has fewer columns."""
    hosts = any(row["host"] for row in metrics["workers"])
    columns = ["worker", *(["host"] if hosts else []), "bins", "records/s", "queued"]
    columns += ["busy ms", "environment"] if width >= _WIDE else []
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == "host" else "right", no_wrap=True)
    for row in metrics["workers"]:
        number = row["worker"]
        told = {
            "worker": str(number), "host": row["host"], "bins": str(dict(enumerate(status["bins"])).get(number, 0)),
            "records/s": plain(row["rate"]), "queued": plain(row["queued"]), "busy ms": plain(row["busy_ms"]),
            "environment": _mib(row["lmdb_bytes"]),
        }  # fmt: skip
        table.add_row(*(told[name] for name in columns))
    return table


def _event(event: dict[str, Any]) -> str:
    at = datetime.fromtimestamp(event["at_us"] / _MICROS, UTC).astimezone()
    return f"{at:%H:%M:%S} {event['text']}"


def _mib(size: float | None) -> str:
    return "-" if size is None else f"{size / _MIB:,.1f} MiB"

"""The producer process: `python -m generators.producer --help`.

It ends with exit code 0 when all records are acknowledged, or when SIGTERM or SIGINT stopped it and everything queued
is; 1 when a record could not be delivered; 2 for parameters or a topic that do not fit. It prints nothing but errors,
and `ready` where it is to await its start.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from generators.clock import ARRIVALS_MS, ARRIVALS_MS_MAX, now_us
from generators.keys import DISTRIBUTIONS, make_keys
from generators.nexmark.profile import PROFILES, make_profile
from generators.nexmark.stream import NexmarkStream
from generators.openloop import LagHistogram, OpenLoop
from generators.rates import SHAPES, Schedule, make_schedule
from generators.spec import GeneratorError
from generators.stdin import Steering, Stop, watch_stdin
from generators.stream import BLOCK_RECORDS, RecordStream, Share, Stream, records_present

RATE_MAX = 1_000_000
_WORKLOADS = ("key-count", "nexmark")
_FLUSH_S = 60.0
_STOP_FLUSH_S = 10.0
_ORPHAN_S = 5.0
_HEAD_START_US = 1_000_000  # connecting to the broker


def check_peak(schedule: Schedule, producers: int = 1) -> None:
    """Raises GeneratorError unless `producers` processes together can be asked for the schedule's highest rate."""
    peak = -(-schedule.peak // producers)
    if peak > RATE_MAX:
        raise GeneratorError(f"One producer sends at most {RATE_MAX} records per second, not {peak}: lower the rate.")


def main(arguments: list[str] | None = None) -> int:
    """Runs the producer and returns its exit code; see the module."""
    stop = Stop.on_signals()
    try:
        options = _parser().parse_args(arguments)
        steering = Steering(stop, extendable=options.extendable)
        if options.watch_stdin or options.extendable or options.await_start:
            watch_stdin(lambda: _end_orphaned(stop), steering.take)
        complaint = _produce(options, stop, steering)
    except GeneratorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"The file {error.filename} cannot be written: {error.strerror}.\n")
        return 2
    if complaint:
        sys.stderr.write(f"{complaint}\n")
    return int(bool(complaint))


def _check(options: argparse.Namespace) -> None:
    """Raises GeneratorError for options that do not go together."""
    if options.workload not in _WORKLOADS:
        raise GeneratorError(f"The workload {options.workload!r} is unknown: use one of {', '.join(_WORKLOADS)}.")
    if options.workload == "key-count" and options.keys is None:
        raise GeneratorError("A key-count stream needs the number of its keys: give --keys.")
    if not 0 < options.arrivals <= ARRIVALS_MS_MAX:
        raise GeneratorError(f"Arrivals lie at most {ARRIVALS_MS_MAX} ms apart: give --arrivals above 0, and no more.")
    if options.preload_only and options.extendable:
        raise GeneratorError("A preload does not go on: give one of --preload-only and --extendable.")
    if options.await_start and options.start_us:
        raise GeneratorError("A start is either known or awaited: give one of --start-us and --await-start.")
    if options.resume and not (options.start_us or options.await_start or options.preload_only):
        raise GeneratorError("A stream is resumed on its first schedule: give the --start-us of the first start.")
    if options.resume and options.preload_only and not options.event_start_us:
        raise GeneratorError(
            "A preload is resumed at its first event time: give the --event-start-us of the first start."
        )


def _produce(options: argparse.Namespace, stop: threading.Event, steering: Steering) -> str:
    """Sends the share and writes its files; returns what went wrong in one sentence, "" for nothing."""
    if not options.out.parent.is_dir():
        raise GeneratorError(f"The folder {options.out.parent} does not exist: make it or give another --out.")
    share = Share.parse(options.share, options.partitions)
    schedule = make_schedule(options.rate_shape, options.rate, options.lead_in)
    check_peak(schedule, share.of)
    _check(options)
    stream = _stream(options, schedule)
    done = records_present(options.bootstrap_servers, options.topic, stream, share, resume=options.resume)
    lag = LagHistogram(keep=options.lag_log is not None)
    loop = OpenLoop(options.bootstrap_servers, options.topic, stop, lag, options.progress, arrivals_ms=options.arrivals)
    there = sum(done)
    preloaded = _preload(loop, stream, share, done)
    if options.preload_only:
        stream.records = 0
    if options.await_start:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        stream.start_us = steering.starts_us()
    elif not options.start_us:
        stream.start_us = now_us() + _HEAD_START_US
    backlog = stream.records_left(share, done, now_us())
    begin_s = time.perf_counter() + max(0, stream.start_us - now_us()) / 1e6
    measured_from_us = stream.start_us + round(options.lead_in * 1e6)
    _send(loop, stream, share, done, steering, measured_from_us=measured_from_us)
    elapsed_s = max(0.0, time.perf_counter() - begin_s)
    flush_s = _STOP_FLUSH_S if stop.is_set() else _FLUSH_S
    missing = loop.flush(flush_s)
    if options.lag_log is not None:
        lag.save(options.lag_log)
    _write_json(
        options.out,
        {
            "records": loop.produced - preloaded,
            "preload": preloaded,
            "lag_ms": lag.summary_ms(),
            "elapsed_s": elapsed_s,
            "share": options.share,
            "already_there": there,
            "backlog": backlog,
            "early": lag.early,
            "refused": lag.refused,
            "undelivered": missing,
        },
    )
    if loop.failed:
        return f"{missing} records were not delivered ({loop.failure}): look at the broker's log, then resume."
    if missing:
        return f"The broker did not acknowledge {missing} records within {flush_s:g} s: look at its log, then resume."
    return ""


def _stream(options: argparse.Namespace, schedule: Schedule) -> RecordStream:
    """Returns the stream of a workload; its start is set again when there was a preload before it."""
    start_us = options.start_us or now_us() + _HEAD_START_US
    if options.workload == "key-count":
        keys = make_keys(options.distribution, options.keys, options.exponent, options.seed)
        return Stream(keys, schedule, start_us, options.records)
    profile = make_profile(
        options.profile, options.rate, out_of_order=options.out_of_order, channels=options.bid_channels
    )
    return NexmarkStream(
        profile, schedule, options.rate, options.seed,
        start_us=start_us, records=options.records, event_start_us=options.event_start_us or None,
    )  # fmt: skip


def _preload(loop: OpenLoop, stream: RecordStream, share: Share, done: list[int]) -> int:
    """Sends what comes before the clock starts, waits for the broker, adds it to `done` and returns its number."""
    loop.run(stream.blocks(share, done, BLOCK_RECORDS, stream.preload), measured_from_us=None)
    if loop.produced:
        loop.flush(_FLUSH_S)  # what is left is counted at the end, and keeps its place before all that follows
    _mark_done(share, done, stream.preload)
    return loop.produced


def _end_orphaned(stop: threading.Event) -> None:
    """Ends the process, whose parent is gone, even if the broker is too."""
    stop.set()
    time.sleep(_ORPHAN_S)
    os._exit(1)


def _send(
    loop: OpenLoop, stream: RecordStream, share: Share, done: list[int], steering: Steering, *, measured_from_us: int
) -> None:
    """Sends the stream to its end, which is where `steering` says last; lag counts from the lead-in's end on."""
    loop.run(stream.blocks(share, done, BLOCK_RECORDS), measured_from_us=measured_from_us)
    while not loop.failed and (records := steering.goes_on(stream.records)):
        _mark_done(share, done, stream.total)
        stream.records = records
        loop.run(stream.blocks(share, done, BLOCK_RECORDS), measured_from_us=measured_from_us)


def _mark_done(share: Share, done: list[int], until: int) -> None:
    """Counts the share's records below number `until` as sent."""
    for partition in share.own_partitions():
        done[partition] = max(done[partition], len(range(partition, until, share.partitions)))


def _write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(path)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise GeneratorError(f"The command line cannot be read: {message}.")


def _parser() -> _Parser:
    parser = _Parser(prog="python -m generators.producer", description="Sends a stream at its schedule.")
    parser.add_argument("--bootstrap-servers", required=True, help="HOST:PORT of the broker")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=2, help="of the topic; record i goes to i modulo partitions")
    parser.add_argument("--rate", type=int, required=True, help="records per second of the whole stream")
    parser.add_argument("--rate-shape", default="constant", help=f"{', '.join(SHAPES)}; options behind a colon")
    parser.add_argument("--lead-in", type=float, default=0.0, help="seconds before the shape begins, without a lag")
    parser.add_argument("--records", type=int, required=True, help="of the whole stream")
    parser.add_argument("--arrivals", type=float, default=ARRIVALS_MS, help="ms between two sendings of what is due")
    parser.add_argument("--workload", default="key-count", help=", ".join(_WORKLOADS))
    parser.add_argument("--keys", type=int, help="of key-count, which needs it")
    parser.add_argument("--distribution", default="uniform", help=f"{', '.join(DISTRIBUTIONS)}; options behind a colon")
    parser.add_argument("--exponent", type=float, default=1.0, help="of zipf")
    _add_nexmark(parser)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--start-us", type=int, default=0, help="microseconds since the Unix epoch; 0 for a second from now"
    )
    parser.add_argument(
        "--await-start", action="store_true",
        help="print `ready` when all is prepared, and wait for the line `start US` on standard input",
    )  # fmt: skip
    parser.add_argument("--share", default="0/1", metavar="I/N", help="send the records i with i modulo N == I")
    parser.add_argument("--resume", action="store_true", help="go on behind what the topic holds (needs --start-us)")
    parser.add_argument("--out", type=Path, required=True, help="generator.json to write")
    parser.add_argument("--lag-log", type=Path, help="also write every record's lag in microseconds (.npy)")
    parser.add_argument("--progress", type=Path, help="append a JSON line once a second")
    parser.add_argument("--watch-stdin", action="store_true", help="end when standard input closes")
    parser.add_argument(
        "--extendable", action="store_true",
        help="at the end wait for a line on standard input: `records N` to go on up to record N, or `end`",
    )  # fmt: skip
    return parser


def _add_nexmark(parser: argparse.ArgumentParser) -> None:
    nexmark = parser.add_argument_group("of nexmark")
    nexmark.add_argument("--profile", default="default", help=f"{', '.join(PROFILES)}; options behind a colon")
    nexmark.add_argument("--out-of-order", default="", metavar="OPTIONS", help="group=N,probability=P,delay=SECONDS")
    nexmark.add_argument("--bid-channels", action="store_true", help="bids carry channel and url")
    nexmark.add_argument(
        "--event-start-us", type=int, default=0, help="event time of the start; 0 for the start itself"
    )
    nexmark.add_argument("--preload-only", action="store_true", help="send what comes before the clock starts, and end")


if __name__ == "__main__":
    sys.exit(main())

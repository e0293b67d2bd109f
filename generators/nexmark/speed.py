"""How fast one process makes NEXMark events: `python -m generators.nexmark.speed --help`.

It makes a stream as a producer does, in blocks of finished JSON values, and sends them nowhere. Processor time is what
counts, so that other processes on the machine do not change the answer: events per second of one core.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from generators.nexmark.profile import make_profile
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.spec import GeneratorError
from generators.stream import BLOCK_RECORDS, RecordStream, Share

_WARM_UP = 20_000


@dataclass(frozen=True)
class Speed:
    """Events made in a stretch of processor time; `bytes` are those of the values, `cpu_s` and `wall_s` seconds."""

    events: int
    bytes: int
    cpu_s: float
    wall_s: float

    @property
    def per_second(self) -> float:
        """Returns events per second of processor time, which is what one core does."""
        return self.events / self.cpu_s


def measure(
    stream: RecordStream, *, cpu: Callable[[], float] = time.process_time, wall: Callable[[], float] = time.perf_counter
) -> Speed:
    """Makes all of a stream, two partitions from one process, and returns how fast that went."""
    began = cpu(), wall()
    events = size = 0
    for block in stream.blocks(Share(0, 1, 2), [0, 0], BLOCK_RECORDS):
        events += len(block.values)
        size += sum(map(len, block.values))
    return Speed(events, size, cpu() - began[0], wall() - began[1])


def middle(speeds: Sequence[Speed]) -> Speed:
    """Returns the round of median speed, the slower of two in the middle."""
    return sorted(speeds, key=lambda speed: speed.per_second)[(len(speeds) - 1) // 2]


def _stream(options: argparse.Namespace, events: int) -> NexmarkStream:
    profile = make_profile(
        options.profile, options.rate, out_of_order=options.out_of_order, channels=options.bid_channels
    )
    schedule = make_schedule("constant", options.rate)
    return NexmarkStream(profile, schedule, options.rate, options.seed, start_us=0, records=events)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m generators.nexmark.speed", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("--events", type=int, default=400_000, help="of a round, the preload not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=100_000, help="of the schedule; it decides how long auctions live")
    parser.add_argument("--profile", default="default", help="default, large-state; options behind a colon")
    parser.add_argument("--out-of-order", default="", metavar="OPTIONS", help="group=N,probability=P,delay=SECONDS")
    parser.add_argument("--bid-channels", action="store_true", help="bids carry channel and url")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=int, default=0, help="events/s of a core below which the exit code is 1")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Prints a line of JSON per round and one of the median; returns 0, 1 if it is too slow, 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        medians = middle(_rounds(options))
    except GeneratorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _tell({"median": options.rounds}, medians)
    return int(medians.per_second < options.at_least)


def _rounds(options: argparse.Namespace) -> list[Speed]:
    if min(options.events, options.rounds) < 1:
        raise GeneratorError(f"There must be an event and a round, not {options.events} and {options.rounds}.")
    measure(_stream(options, _WARM_UP))
    speeds = []
    for number in range(options.rounds):
        speeds.append(measure(_stream(options, options.events)))
        _tell({"round": number}, speeds[-1])
    return speeds


def _tell(head: dict[str, int], speed: Speed) -> None:
    numbers = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(speed).items()}
    rates = {"us_per_event": round(1e6 / speed.per_second, 2), "events_per_s": round(speed.per_second)}
    sys.stdout.write(json.dumps({**head, **numbers, **rates}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

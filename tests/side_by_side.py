"""A case's query on Spark's own operator and on this project's, side by side: what differs in output and state."""

from typing import Any

from cases import Case, send, step_records
from native_processor import Native
from own_processor import Own

__all__ = ["differences", "run_side_by_side"]


def run_side_by_side(case: Case, kafka: str, topic: str, native: Native, own: list[Own]) -> list[str]:
    """Lets all queries take a case's steps; returns what differs in outputs after each, and in the final states."""
    different: list[str] = []
    for step in range(len(case.chunks)):
        if step == 0 or step in case.replaced:
            _start(case.replaced.get(step, case.processor), native, own)
        for query in own:
            query.disturb(step)
        send(case, kafka, topic, step)
        total = (step + 1) * step_records(case)
        for query in (native, *own):
            query.finish(total)
        if not case.whole or step == len(case.chunks) - 1:
            expected = native.outputs()
            for query in own:
                different += differences(f"{query.name}, step {step}", expected, query.outputs())
    for query in (native, *own):
        query.stop()
    held = native.state()
    for query in own:
        for expected, got in zip(held, query.state(held), strict=True):
            different += differences(f"{query.name}, state {got.name}", expected.entries, got.entries)
    return different


def _start(processor: Any, native: Native, own: list[Own]) -> None:
    queries = (native, *own)
    for query in queries:
        query.stop()
        query.begin(processor())
    for query in queries:
        query.await_begun()


def differences(where: str, expected: list[str], got: list[str]) -> list[str]:
    """What one has and the other has not, each a line."""
    left = list(got)
    missing = [one for one in expected if one not in left or left.remove(one)]
    lines = [f"missing: {one}" for one in missing] + [f"too much: {one}" for one in left]
    return [f"{where}: {line}" for line in lines]

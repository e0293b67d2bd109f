"""What one seed decides on a cluster: its hosts and what befalls them, beside all that `chaos.parameters` draws."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from chaos.parameters import KINDS, RESTART, Fault, Parameters, draw
from impls.placement import goal
from impls.protocol.controller import Controller
from impls.protocol.seats import numbers_on, renumbered

EMPTY = "with an empty disk"  # in place of a point: the host comes back without its state folder
REACHES = "not from the checkpoint"  # the host is cut off from driver and hosts, not from checkpoint and topic
FOR_GOOD = 99
HOST_KINDS = {"gone": 4, "cut": 4, "executor": 3, "link": 3, "server": 2, "join": 1}
_NEAR_A_COMMAND = 0.7


def draw_on_hosts(
    seed: int, *, host_kinds: dict[str, int] | None = None, host_faults: int | None = None, **more: Any
) -> Parameters:
    """Returns what a seed decides for a query on two to five hosts; `more` is for `draw`.

    `host_kinds` weighs what befalls hosts, `host_faults` is its number. Checkpoint and topic are on none of the hosts,
    so that no fault tears them. Bits are not flipped, if `more` does not say so: once one is, any rebuild has a cause.
    """
    kinds = more.pop("kinds", {kind: weight for kind, weight in KINDS.items() if kind not in {"host", "flip"}})
    drawn = draw(seed, kinds=kinds, **{"durability": "process", **more})
    random = Random(seed + 7)
    drawn = replace(
        drawn, hosts=random.randint(2, 5), cores=random.randint(1, 3), wander=random.choice((0.0, 0.0, 0.05)),
        streams=random.choice((1, 2, 8)), commands=_on_hosts(random, drawn, more="commands" not in more),
    )  # fmt: skip
    found = host_kinds or HOST_KINDS
    number = random.randint(1, 5) if host_faults is None else host_faults
    faults = [
        _fault(random, drawn, kind)
        for kind in random.choices(list(found), list(found.values()), k=number if found else 0)
    ]
    return replace(drawn, faults=tuple(sorted([*drawn.faults, *faults], key=lambda fault: fault.epoch)))


def _on_hosts(random: Random, drawn: Parameters, *, more: bool) -> tuple[tuple[int, str, int], ...]:
    """Returns the commands, some of them for some of the hosts, and one `more`: early ones find no server yet."""
    found = [
        (epoch, "hosts", random.randint(1, 31)) if kind == "rescale" and random.random() < 0.4 else (epoch, kind, value)
        for epoch, kind, value in drawn.commands
    ]
    if more:
        last = found[-1][0] if found else 0
        found.append((min(last + random.randint(3, 8), drawn.epochs - 1), "shuffle", random.randint(1, 6)))
    return tuple(found)


def _fault(random: Random, drawn: Parameters, kind: str) -> Fault:
    epoch = random.randint(1, drawn.epochs - 4)
    if drawn.commands and random.random() < _NEAR_A_COMMAND:
        epoch = min(random.choice(drawn.commands)[0] + random.randint(1, 7), drawn.epochs - 4)
    at = random.choice((0, 0, RESTART, *(random.randint(1, 25) for _ in range(6))))
    times = random.choice((1, 1, 2, 3, 5, 8, FOR_GOOD))
    fault = Fault(epoch, kind, random.randrange(5), at, times)
    match kind:
        case "gone":
            fault = replace(fault, point=random.choice(("", "", EMPTY)))
        case "cut":
            fault = replace(fault, point=random.choice(("", REACHES)))
        case "link":
            fault = replace(fault, at=random.randint(0, 4), times=random.choice((0, 1, 3, 8)))
        case "join":
            fault = replace(fault, at=0)
    return fault


def goal_on(controller: Controller, hosts: tuple[str, ...], known: tuple[str, ...]) -> Any:
    """Returns the handle's goal of a rescale to as many workers as there are hosts, on these; int32, shape (bins,)."""
    workers, current = len(hosts), controller.commanded
    numbers = numbers_on(workers, hosts, controller.homes, current.tolist(), known)
    return np.array(numbers, np.int32)[goal("minimal_move", renumbered(current, numbers), workers)]

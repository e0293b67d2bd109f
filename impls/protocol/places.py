"""Where a bin's state is while an epoch runs, for whoever reads it beside the workers."""

from typing import NamedTuple

from impls.protocol.controller import Controller


class BinPlace(NamedTuple):
    """Where a bin's state is, as of a plan.

    Attributes:
        location: the worker that had it at the end of the epoch before.
        target: the worker to which the plan has it pulled, None for no pull.
        epoch: the plan's.
        homes: hosts of location and target, "" where there is only one host, or nobody knows.
    """

    location: int
    target: int | None
    epoch: int
    homes: tuple[str, str]


def place_of(bin_: int, controller: Controller, epoch: int) -> BinPlace:
    """Returns where a bin is.

    Args:
        bin_: the bin.
        controller: what the driver knows.
        epoch: the last one whose plan is durable and holds: a pull of a later one has not begun.
    """
    pull = controller.pulls.get(bin_) if epoch > controller.observed else None
    location, target = int(controller.location[bin_]), None if pull is None else pull.target
    homes = controller.homes.get(location, ""), "" if target is None else controller.homes.get(target, "")
    return BinPlace(location, target, epoch, homes)

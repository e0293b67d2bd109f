"""Where a bin's state is while an epoch runs, for whoever reads it beside the workers."""

from typing import NamedTuple

from impls.protocol.controller import Controller
from impls.protocol.plan import WrittenPlan


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


def place_of(bin_: int, controller: Controller, held: WrittenPlan | None) -> BinPlace:
    """Returns where a bin is.

    Args:
        bin_: the bin.
        controller: what the driver knows.
        held: the plan of the epoch under way, None between two epochs.
    """
    pulls = () if held is None else held.plan.pulls
    location = int(controller.location[bin_])
    target = next((pull.target for pull in pulls if pull.bin == bin_), None)
    homes = controller.homes.get(location, ""), "" if target is None else controller.homes.get(target, "")
    return BinPlace(location, target, controller.observed if held is None else held.epoch, homes)

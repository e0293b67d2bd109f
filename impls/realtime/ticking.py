"""A worker's part of a tick: which bins it may pull now, and when it is done. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.realtime import Final, Marks
from impls.worker.pull import on_demand, within_budget


class WorkerTick:
    """hear() what the driver says; due() and pulled() in turn; ready() says that the worker may end the tick.

    Attributes:
        missing: bins routed here whose state has not come.

    Args:
        order: the tick's.
        worker: the worker.
        done: bins that it has pulled in this tick before its task was started again.
    """

    def __init__(self, order: EpochOrder, worker: int, done: Collection[int] = ()):
        self._plan, self._tick = order.written.plan, order.written.epoch
        self._sizes = dict(order.sizes)
        routing = self._plan.routing
        mine = [p for p in self._plan.pulls if p.target == worker and p.bin not in done]
        self.missing = {bin_ for bin_, _ in order.elsewhere if routing[bin_] == worker} - set(done)
        if not self._plan.on_demand:
            mine = within_budget(mine, self._sizes, self._plan.budget_bytes)
        self._left = mine
        self._spent, self._swept = 0, False
        self._marks: dict[int, int] | None = None
        self._finals: set[int] = set()
        self._all_final = False

    def hear(self, message: Marks | Final) -> None:
        """Takes in marks, or that a worker is final; those of another tick are passed over."""
        if message.tick != self._tick:
            return
        if isinstance(message, Final):
            self._finals.add(message.worker)
        else:
            self._marks, self._all_final = dict(message.counts), message.settled

    def reached(self, applied: Mapping[int, int]) -> bool:
        """Returns whether nothing more comes by the routing before, when the first blobs `applied` are committed."""
        return self._marks is not None and all(applied.get(f, 0) >= n for f, n in self._marks.items())

    def closing(self, applied: Mapping[int, int]) -> bool:
        """Returns whether all that is left to be pulled can be, and nothing more comes by the routing before."""
        final = self._all_final or {pull.source for pull in self._left} <= self._finals
        return final and self.reached(applied)

    def due(self, need: Mapping[int, int], *, closing: bool) -> list[Pull]:
        """Returns the pulls to do now, in order.

        Args:
            need: records that wait for bins, queued or just come.
            closing: what nothing needs may come too, once in a tick.
        """
        open_ = [pull for pull in self._left if self._all_final or pull.source in self._finals]
        if not self._plan.on_demand:
            return open_
        budget = None if self._plan.budget_bytes is None else self._plan.budget_bytes - self._spent
        if budget is not None and budget <= 0 and self._spent:
            return []
        if closing and not self._swept:
            return on_demand(open_, need, self._sizes, replace(self._plan, budget_bytes=budget))
        wanted = sorted((pull for pull in open_ if need.get(pull.bin)), key=lambda pull: -need[pull.bin])
        return within_budget(wanted, self._sizes, budget)

    def pulled(self, pulls: Collection[Pull], *, closing: bool) -> None:
        """Takes in that what due() returned is committed."""
        bins = {pull.bin for pull in pulls}
        self._left = [pull for pull in self._left if pull.bin not in bins]
        self.missing -= bins
        self._spent += sum(self._sizes.get(bin_, 0) for bin_ in bins)
        self._swept = self._swept or closing

    def ready(self, applied: Mapping[int, int]) -> bool:
        """Returns whether the worker may end the tick: its marks are reached, and nothing is left that it must pull."""
        if self._plan.on_demand:
            return self._swept and self.reached(applied)
        return self.reached(applied) and not self._left

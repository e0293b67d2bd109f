"""A query of this process whose workers are, for whoever reads keys, on another host: behind a server of bins there."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from timed import TimedRun

from impls.protocol.places import BinPlace
from impls.reading.points import PointReader
from impls.transfer.server import BinServer
from impls.transfer.settings import Transfer

FAR = "127.0.0.2"
SETTINGS = Transfer.new()


class Seated:
    """A driver, some of whose workers are on another host."""

    def __init__(self, driver: Any, far: Collection[int], servers: Mapping[str, str]):
        self._driver, self._far, self.servers = driver, far, servers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def place(self, bin_: int) -> BinPlace:
        place = self._driver.place(bin_)
        return place._replace(homes=tuple(FAR if worker in self._far else "" for worker in place[:2]))


@contextmanager
def reader_of(run: TimedRun, far: Collection[int]) -> Iterator[PointReader]:
    """Reads keys of a query; environments of the workers that are far come from a server."""
    where = {"generation": run.checkpoint.generation, "host": FAR, "state_dir": run.folder / "state"}
    with BinServer(SETTINGS, query=run.checkpoint.query, **where) as server:
        driver = Seated(run.driver, far, {FAR: server.address})
        yield PointReader(driver, run.checkpoint, replace(run.spec, transfer=SETTINGS), in_sql=int)

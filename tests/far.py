"""A query of this process whose workers are, for whoever reads keys, on another host: behind a server of bins there."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

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


class Far:
    """A host with the environments of some workers of a query, none perhaps; a context manager."""

    def __init__(self, run: TimedRun, workers: Collection[int]):
        self._run, self._workers, self._opened = run, workers, ExitStack()
        self._generation, self._servers = -1, dict[str, str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def reader(self) -> PointReader:
        """Returns what reads keys of the query; those of the host come from its server, of which each start has one."""
        run, generation = self._run, self._run.checkpoint.generation
        if self._workers and generation != self._generation:
            self._opened.close()
            where = {"generation": generation, "host": FAR, "state_dir": run.folder / "state"}
            server = self._opened.enter_context(BinServer(SETTINGS, query=run.checkpoint.query, **where))
            self._generation, self._servers = generation, {FAR: server.address}
        driver = Seated(run.driver, self._workers, self._servers)
        return PointReader(driver, run.checkpoint, replace(run.spec, transfer=SETTINGS), in_sql=int)

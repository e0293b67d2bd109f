"""The real servers and pullers of bins without sockets: links that break, servers that end, are old or come late."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
from pyarrow import flight

from chaos.cluster import Cluster
from chaos.parameters import Parameters
from chaos.stage import Attempt
from chaos.violation import Violation
from impls.errors import CorruptStateError
from impls.store.environment import read_meta
from impls.transfer import client, server
from impls.transfer.server import BinServer
from impls.transfer.settings import Transfer
from impls.transfer.ticket import RefusedError, Ticket, items_of, seal

_STARTS_IN = (0, 0, 0, 1, 6)  # tasks that ask for a server before it answers


class _Unbound(flight.FlightServerBase):
    """Takes the place of the part that listens."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class HostServer(BinServer, _Unbound):
    """A server at an address that the one after it has too, as ports are given again.

    Attributes:
        generation: of the driver whose task started it.
        late: tasks that will ask for it before it answers.
    """

    def __init__(self, transfer: Transfer, *, generation: int, late: int, **more: Any):
        super().__init__(transfer, generation=generation, **more)
        self.generation, self.late = generation, late

    @property
    def address(self) -> str:
        """Where it is asked for bins."""
        return f"grpc+tcp://{self._host}:1"


class Network:
    """The servers of all hosts, and what happens on the way.

    Attributes:
        breaks: host -> message at which pulls to and from it break.
        seen: bytes, pulls that were served whole, and what became of the others.
    """

    def __init__(self, parameters: Parameters, cluster: Cluster, complain: Callable[[Violation], None]):
        self._cluster, self._complain = cluster, complain
        self._random = Random(parameters.seed + 9)
        self._servers: dict[str, HostServer] = {}
        self.breaks: dict[str, int] = {}
        self.seen: Counter[str] = Counter()

    def offer(self, transfer: Transfer, *, query: str, generation: int, host: str, state_dir: str) -> str:
        """Stands for `impls.transfer.client.offer`: a task asks for its host's server."""
        found = self._servers.get(host)
        if found is None or found.generation < generation:
            late = self._random.choice(_STARTS_IN)
            how = {"query": query, "generation": generation, "host": host, "state_dir": state_dir}
            found = self._servers[host] = HostServer(transfer, late=late, **how)
        elif found.generation > generation:
            return ""  # one that is started for an old driver sees that it is replaced
        found.late -= 1
        return "" if found.late >= 0 else found.address

    def end(self, host: str) -> None:
        """Ends a host's server, if there is one."""
        self._servers.pop(host, None)

    def reader(self) -> Any:
        """Returns what stands for the class of the messages of a pull."""
        network = self

        class Messages:
            def __init__(self, transfer: Transfer, address: str, ticket: Ticket, _deadline_s: float):
                self._what = transfer, address, ticket

            def __iter__(self) -> Iterator[list[tuple[bytes, bytes]]]:
                try:
                    yield from network.messages(*self._what)
                except CorruptStateError:
                    network.seen["broken"] += 1
                    raise
                except (flight.FlightUnauthorizedError, RefusedError) as error:
                    told = server._as_flight_error(error) if isinstance(error, RefusedError) else error
                    network.seen[told.extra_info.decode()] += 1
                    raise client._meaning(told, self._what[2].host) from None

        return Messages

    def messages(self, transfer: Transfer, address: str, ticket: Ticket) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yields the items of each message of a pull by the attempt that runs."""
        attempt = self._cluster.current
        assert attempt is not None, "an attempt pulls"
        asked_host = address.partition("//")[2].partition(":")[0]
        self._check_link(attempt.host, asked_host, 0)
        asked = self._servers.get(asked_host)
        if asked is None or asked.late >= 0:
            raise CorruptStateError(f"Host {ticket.host} does not answer at {address}.")
        for number, batch in enumerate(self._served(asked, seal(ticket, transfer.token), attempt, transfer.busy_s), 1):
            self._cluster.point("message")
            self._check_link(attempt.host, asked_host, number)
            if self._servers.get(asked_host) is not asked:
                raise CorruptStateError(f"Host {ticket.host} does not hand over bins: its server ended.")
            self.seen["bytes"] += batch.nbytes
            yield items_of(batch)
        self.seen["whole"] += 1

    def _served(self, asked: HostServer, sealed: bytes, attempt: Attempt, busy_s: float) -> Iterator[pa.RecordBatch]:
        admitted = asked._admitted(sealed)
        asked._await_turn(asked._turns, busy_s)
        try:
            stream = asked._opened(admitted)
        except BaseException:
            asked._turns.release()
            raise
        found = read_meta(stream.view)
        if asked.generation != attempt.generation:
            self._complain(Violation("transfer", f"a server serves an attempt of generation {attempt.generation}"))
        if found is None or found.epoch not in {attempt.epoch - 1, attempt.epoch}:
            at = None if found is None else found.epoch
            self._complain(Violation("transfer", f"bins of epoch {at} are served in epoch {attempt.epoch}"))
        served = asked._served(stream, admitted)
        try:
            next(served)
            yield from served
        finally:
            served.close()

    def _check_link(self, one: str, other: str, number: int) -> None:
        """Raises CorruptStateError when hosts do not reach each other, or not beyond a message."""
        away = self._cluster.hosts.back if self._cluster.hosts else {}
        if one != other and (one in away or other in away):
            raise CorruptStateError(f"Host {other} does not answer.")
        if number >= min(self.breaks.get(host, 1 << 30) for host in (one, other)):
            raise CorruptStateError(f"Host {other} does not hand over bins: the connection was lost.")

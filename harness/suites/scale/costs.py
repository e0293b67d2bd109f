"""What an epoch costs: the parameters of the simulator, measured in a real run or assumed, each with its source."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness.files import write_json
from impls.errors import UsageError

__all__ = ["COSTS", "DEFAULT_COSTS", "Costs", "read_costs", "write_costs"]

DEFAULT_COSTS = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Costs:
    """Times and bandwidths; what is said "per worker" holds for a worker that has a core of its own.

    Attributes:
        epoch_ms: an epoch with neither records nor moves, from the cut of its records to that of the next.
        response_ms: from an epoch's cut to its results, records and moves apart.
        between_ms: the part of an epoch that lies between two jobs; a migration's duration leaves it out at its ends.
        worker_ms: what each worker adds to an epoch, whoever it is.
        record_us: what a record costs its worker.
        slots: workers that run at the same time, 0 for all of them.
        jitter: standard deviation of the logarithm of an epoch's time.
        pull_bytes_s, pull_bin_ms: a worker's pull from another worker's state: bandwidth, and cost per bin.
        checkpoint_bytes_s, checkpoint_bin_ms: the same from the checkpoint.
        replica_bytes_s, replica_bin_ms: bringing a replica up to date, behind the results of an epoch.
        net_bytes_s, net_bin_ms, net_pull_ms: a pull from another host's server: bandwidth, cost per bin, and of the
            request; serve_bytes_s, serve_bin_ms, serve_pull_ms: what it costs that server, which has one core's worth.
        log_record_bytes: bytes that a record adds to the changelog.
        query_s, application_s: stopping and starting the query, and the whole application.
        external_record_us, external_bin_ms: with external state, what a record and the move of a bin cost instead.
        source: where the values come from, for all of them and for single ones.
    """

    epoch_ms: float
    response_ms: float
    between_ms: float
    worker_ms: float
    record_us: float
    slots: int
    jitter: float
    pull_bytes_s: float
    pull_bin_ms: float
    checkpoint_bytes_s: float
    checkpoint_bin_ms: float
    replica_bytes_s: float
    replica_bin_ms: float
    net_bytes_s: float
    net_bin_ms: float
    net_pull_ms: float
    serve_bytes_s: float
    serve_bin_ms: float
    serve_pull_ms: float
    log_record_bytes: float
    query_s: float
    application_s: float
    external_record_us: float
    external_bin_ms: float
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "source" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ValueError(f"{name} must be a number from 0, not {value!r}")

    def stop_s(self, what: str) -> float:
        """Returns how long a stop and start of the query, or of the application, takes."""
        return self.application_s if what == "application" else self.query_s

    def of(self, mechanism: str) -> "Costs":
        """Returns the costs under a mechanism: external state makes records dearer and moves no bytes."""
        if "external" not in mechanism:
            return self
        return replace(
            self, record_us=self.external_record_us, pull_bin_ms=self.external_bin_ms, pull_bytes_s=float("inf")
        )


COSTS = tuple(one.name for one in fields(Costs) if one.name != "source")


def read_costs(path: Path = DEFAULT_COSTS) -> Costs:
    """Reads costs; raises UsageError that names the file for anything that is not a full set of numbers."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        values: dict[str, Any] = data["values"]
        return Costs(**{name: values[name] for name in COSTS}, source=dict(data.get("source", {})))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The costs in {path} cannot be read ({error}): make them anew with --calibrate.") from error


def write_costs(costs: Costs, path: Path) -> None:
    """Writes costs as `read_costs` reads them."""
    values = asdict(costs)
    source = values.pop("source")
    write_json(path, {"source": dict(source), "values": values})

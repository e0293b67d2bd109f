"""What is constant for a query's life, put together from what `impls.stream` is given and what its checkpoint says."""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from impls.driver.checkpoint import Checkpoint
from impls.driver.outputs import keep_outputs
from impls.driver.pipeline import INITIAL
from impls.durability.files import Files
from impls.operators.base import Operator
from impls.operators.pipeline import contents_of
from impls.protocol.mechanism import Mechanism
from impls.spark.columns import kind_of_key
from impls.spark.input import QueryInput
from impls.spark.master import is_local
from impls.spark.plans import times_of
from impls.spark.readiness import host_name
from impls.spark.secrecy import check_channel, secrets_of
from impls.store.foreign import check_own
from impls.transfer.settings import Transfer, certificate_of
from impls.worker.output import Output
from impls.worker.query import QuerySpec
from impls.worker.sinks import Sink

_GO_BACK = {"aggregates", "processor"}  # values of what `impls.release` compares with a Spark query


def spec_of(
    read: QueryInput, how: Mechanism, operator: Operator, sink: Sink, transfer: Transfer | None, *, opened: Checkpoint,
    bins: int, state_dir: str, files: Files | None, repeats: bool, on_error: str,
) -> QuerySpec:  # fmt: skip
    """Returns what is constant for the query's life, and keeps how its state is read.

    Raises UsageError where its results cannot go on, or another query's state is in its folder on this host.
    """
    _check_state(read.df.sparkSession, state_dir, opened)
    first, out = _first_version(opened, operator), _of(opened, sink)
    form = first.state_form()
    times = times_of(read.df) if form["values"] in _GO_BACK else {}
    opened.keep_form({**form, **times}, kind_of_key(read.df, opened.settings["key"]))
    return QuerySpec(
        opened.query, bins, first, out, state_dir, files, how.shared, transfer, repeats, on_error,
        read.told_apart.by_number(), read.source.linked,
    )  # fmt: skip


def _check_state(spark: SparkSession, state_dir: str, opened: Checkpoint) -> None:
    """Refuses another query's state on this host; a worker on another host refuses what is there in its first epoch."""
    on_cluster = not is_local(spark.sparkContext.master)
    check_own(f"{state_dir}/{host_name()}" if on_cluster else state_dir, opened.query)


def _first_version(opened: Checkpoint, operator: Operator) -> Operator:
    """Returns version 0 of the pipeline: once it was changed, the checkpoint has its code, and `operator` its identity.

    A replay then runs what ran before, whatever has become of the user's module.
    """
    path = opened.own / "code" / INITIAL
    if not path.exists():
        return operator
    return contents_of(path.read_bytes()).operator


def _of(opened: Checkpoint, sink: Sink) -> Sink:
    """Returns a sink whose results name the query; raises UsageError where they would come to other partitions."""
    if not isinstance(sink, Output):
        return sink
    begins = opened.base is None and not opened.read("plan")
    keep_outputs(opened.own, sink.topic, sink.partitions, begins=begins, fsync=opened.fsync)
    return replace(sink, query=opened.query)


def hosts_of(df: DataFrame, how: Mechanism, sink: Sink, log_dir: str | None, tls: str) -> Transfer | None:
    """Returns how bins go from host to host; None where there is one host or one store.

    Raises UsageError where there is no certificate, or where Spark would send the query's secrets in the open.
    """
    context = df.sparkSession.sparkContext
    check_channel(context.getConf(), secrets_of(sink, how.shared, log_dir, tls))
    return None if is_local(context.master) or how.shared is not None else Transfer.new(*certificate_of(tls))

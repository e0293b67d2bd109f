"""What a worker knows of a batch of Spark's that may come again, and what it gives up of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from impls.protocol.report import Report
from impls.store.records import Results, part_number, put_queued, queued_records, stored_queues, take_queues
from impls.worker.environment import Environment
from impls.worker.reports import forget_times, keep_report, kept_report, settle_times, with_times


def begin_batch(env: Environment, batch: int, *, resumed: bool) -> None:
    """Notes where Spark's batch begins; what was queued of a batch that comes again is given up.

    It may end earlier than it failed, so that the next one brings what is known already.

    Args:
        env: the worker's environment.
        batch: Spark's number of it.
        resumed: the task has had an environment before: what is known of the batch does not come again.
    """
    with env.reading() as txn:
        queues = stored_queues(txn)
    known = env.state.batch == batch
    if known and resumed:
        _keep_queued(env, queues, env.state.number)
        return
    if not known:
        state, times = settle_times(env.state)
        state = replace(state, batch=batch, since=env.state.number)
        worker = env.task.worker
        env.state = keep_report(state, kept_report(state, worker), with_times(Report(worker), times))
    # an epoch has ended when all workers have ended it: what this one alone has ended comes again
    since = max(env.state.since, env.state.first_of(env.task.epoch))
    _keep_queued(env, queues, since)
    doubled = {bin_: entries for bin_, entries in queues.items() if part_number(entries[-1]) >= since}
    if doubled or (known and forget_times(env.state) != env.state):
        _give_up(env, doubled, since)


def _keep_queued(env: Environment, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
    """Has records left out when they come again that queues keep, each with the watermark of its commit.

    They follow on what the bin's owner has applied: it was final before the epoch ended that queued them.
    """
    assert env.offsets is not None, "a batch that may come again has bins that keep their offsets"
    for entries in queues.values():
        for entry in entries:
            if part_number(entry) < since:
                env.offsets.keep(queued_records(entry))


def _give_up(env: Environment, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
    """Deletes from queues what comes again, in a commit of its own."""
    state, txn = forget_times(env.state), env.begin()
    operations: list[tuple[int, bytes | None]] = []
    try:
        for bin_, entries in queues.items():
            take_queues(txn, [bin_])
            operations.append((bin_, None))
            for entry in (e for e in entries if part_number(e) < since):
                put_queued(txn, bin_, entry)
                operations.append((bin_, entry))
        frame = env.frame(queue=operations)
        record = env.commit(txn, frame, Results.none(), replace(state, commits=state.commits + 1))
    except BaseException:
        txn.abort()
        raise
    env.queues = env.queues.after(operations)
    env.log(frame.epoch, record)

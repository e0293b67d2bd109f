"""What the driver says instead of running an epoch: the supervisor of its thread takes it."""

from impls.protocol.plan import Stop


class QueryEnded(Exception):  # noqa: N818 - a signal to the supervisor, not a failure
    """The query was asked to end and is between two epochs."""


class StopNeeded(Exception):  # noqa: N818
    """The plan asks for a stop before `epoch`: the query ends, that becomes durable, and it is started again.

    With `what` "application" the Spark session is to be stopped and started as well.
    """

    def __init__(self, epoch: int, what: Stop):
        super().__init__(f"stop before epoch {epoch}")
        self.epoch, self.what = epoch, what

"""Tasks of a cluster of hosts: cluster.pack."""

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.options.declared import Option

__all__ = ["pack"]


@verb(
    Option("also", "further installed distributions that your operators need, separated by commas", default="",
           shown="none"),
)  # fmt: skip
def pack(c: Context, also: str) -> None:
    """Pack Python, the locked libraries and the code for the executors of a cluster; prints the archive's path.

    The archive is for bench's --archive, for the archive option of impls.spark.session.spark_session, and for Spark's
    own spark.archives. It is packed once per lock file and state of the code.
    """
    run("harness.setup.pack:print_packed", also)

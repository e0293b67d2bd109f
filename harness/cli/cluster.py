"""Tasks of a cluster of hosts: cluster.pack, cluster.start, cluster.stop, cluster.status."""

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.lab.hosts.settings import HOSTS_MOST
from harness.options.declared import COUNT, FOLDER, Option

_FOLDER = Option("folder", "folder of the cluster", FOLDER, shown="results/cluster/")


@verb(
    Option("also", "further installed distributions that your operators need, separated by commas", default="",
           shown="none"),
)  # fmt: skip
def pack(c: Context, also: str) -> None:
    """Pack Python, the locked libraries and the code for the executors of a cluster; prints the archive's path.

    The archive is for bench's --archive, for the archive option of impls.spark.session.spark_session, and for Spark's
    own spark.archives. It is packed once for these versions and this state of the code.
    """
    run("harness.setup.pack:print_packed", also)


@verb(
    Option("hosts", "number of hosts", COUNT, default=2, subject="The number of hosts", least=1, most=HOSTS_MOST),
    Option("cores", "tasks that each host runs at once", COUNT, default=2, subject="The number of cores", least=1),
    Option("memory", "memory of each host for executors, such as 1g", default="1g"),
    Option(
        "netem", "what the network does to the packets that each host sends, such as 'delay 2ms loss 0.1%' (as root)",
        default="", shown="nothing",
    ),
    _FOLDER,
)  # fmt: skip
def start(c: Context, folder: str | None, **given: str) -> None:
    """Start a Spark cluster of several hosts on this machine; as root each has namespaces of its own."""
    run("harness.suites.hosts:start", folder, **given)


@verb(_FOLDER)
def stop(c: Context, folder: str | None) -> None:
    """Stop the cluster; nothing is left of it but its logs."""
    run("harness.suites.hosts:stop", folder)


@verb(_FOLDER)
def status(c: Context, folder: str | None) -> None:
    """Show the cluster's hosts: address, state and processes."""
    run("harness.suites.hosts:status", folder)

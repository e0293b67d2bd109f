"""What a session on a cluster is told beside what every session is: this machine's address, and to notice losses soon.

With Spark's own settings a host that is cut off is noticed after 120 s, and an epoch waits as long.
"""

from impls.spark.master import address_towards, is_local, standalone_addresses

__all__ = ["remote_settings"]

_LOSSES = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "6s",  # after which the driver gives up an executor
    "spark.network.timeoutInterval": "1s",  # how often it looks
    "spark.network.timeout": "8s",  # after which a fetch gives up its connection
    "spark.rpc.io.connectionTimeout": "120s",  # else 8 s without an answer, on a busy host, part driver and master
    "spark.standalone.executorRemoveDelayOnDisconnection": "0s",  # 5 s, in wait for the master's words on it
    "spark.shuffle.io.retryWait": "1s",  # 5 s between the tries to fetch from a host that is gone
}


def remote_settings(master: str | None) -> dict[str, str]:
    """Returns the settings of a session on a master elsewhere; none for a local one.

    The driver's address is that by which a standalone master is reached. For YARN and Kubernetes it is Spark's choice.
    """
    if master is None or is_local(master):
        return {}
    addresses = standalone_addresses(master)
    if not addresses:
        return _LOSSES
    own = address_towards(addresses[0][0])
    return {**_LOSSES, "spark.driver.host": own, "spark.driver.bindAddress": own}

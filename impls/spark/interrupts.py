"""Ctrl-C in a call of the JVM ends that call alone, and is said once.

py4j 0.10.9.9 then has the JVM close every connection whose remote *or* local port is that of the call's: all of them,
as they share the server's port. Calls of other threads fail, and so may the next one of the same thread, whose
connection is made while the JVM goes through its list.
"""

import logging

from py4j.clientserver import ClientServerConnection


def contain_interrupts() -> None:
    """A call that is interrupted closes its connection on Python's side; the JVM finds out when it answers."""
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # it would print the same from Python's side
    logging.getLogger().addFilter(_is_news)
    ClientServerConnection.shutdown_socket = _close


def _close(connection: ClientServerConnection, port: int, _server_port: int) -> None:
    """Closes a connection if it is the one of the call, by its port, else puts it back among the idle ones.

    Another thread may be closing one of these: nothing of that may stand in for the KeyboardInterrupt.
    """
    try:
        own = connection.socket.getsockname()[1] == port
    except (AttributeError, OSError):  # it is closed
        return
    if own:
        connection.close()
    else:
        connection.java_client.deque.append(connection)


def _is_news(record: logging.LogRecord) -> bool:
    """Says no of what py4j logs when Ctrl-C comes in one of its calls; its caller gets the KeyboardInterrupt anyway."""
    return record.msg != "KeyboardInterrupt while sending command."

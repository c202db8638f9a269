"""Time-outs of tasks, and those of blocking sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout
else:
    from async_timeout import timeout as timeout


def cancellations() -> int:
    """How often the running task was asked to end; 0 before Python 3.11, which does not tell."""
    if sys.version_info < (3, 11):
        return 0
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


#: There a ``struct timeval`` is two longs.
KNOWN = sys.platform == "linux" and sys.maxsize > 2**32


def leave_to_kernel(connection: Any) -> bool:
    """Have the kernel end each wait of a connection after its ``socket_timeout``, if it can.

    Returns whether it does. Python's own time-outs cost a system call more each way. Not of TLS,
    which reads more than once for a reply, nor of sockets that an event loop such as gevent's has
    put in place of Python's: those wait in their own ways.
    """
    plain = getattr(connection, "_sock", None)
    kind = type(plain)
    if not KNOWN or plain is None or (kind.__module__, kind.__name__) != ("socket", "socket"):
        return False
    seconds, rest = divmod(connection.socket_timeout, 1)
    limit = struct.pack("ll", int(seconds), int(rest * 1e6) or 1)
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        plain.setsockopt(socket.SOL_SOCKET, way, limit)
    plain.settimeout(None)
    return True

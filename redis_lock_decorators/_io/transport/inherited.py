"""Connections that a forked child has from its parent: their descriptors are replaced there.

The child must not keep a subscription open, as its end shows the parent's death. If a signal
handler forks in the middle of an exchange, the copy of it must neither send its parent's request
nor read the parent's reply.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from redis_lock_decorators._flow import fork
from redis_lock_decorators.errors import LockError


class Inherited(Protocol):
    """A connection, open or closed."""

    def fileno(self) -> int:
        """Its descriptor; raises an exception, or returns -1, if it is closed."""


#: any thread
_connections: WeakSet[Inherited] = WeakSet()


def add(connection: Inherited) -> None:
    """Have the descriptor of a connection replaced in all children that are forked later."""
    _connections.add(connection)


def refuse_copy(process: int) -> None:
    """Refuse to go on with a request of another process, as its copy in a forked child would.

    A connection that was being opened as the child was forked has not been replaced.

    Raises:
        LockError: this process is not the one with that number.
    """
    if process != fork.process_id:
        raise LockError(
            "this code is a copy of code of the process from which this one was forked, which "
            "sends its requests: use locks in code that the child starts, in asyncio best on an "
            "event loop of its own"
        )


def _after_in_child() -> None:
    """Replace the descriptors. Their numbers stay in use, as an event loop may know them.

    A pipe that nothing is written to can be watched by event loops, and is always at its end. To
    send to it fails without a signal.
    """
    found = list(_connections)
    _connections.clear()
    if found:
        unused, other = os.pipe()
        os.close(other)
        for connection in found:
            with suppress(Exception):  # it was closed
                os.dup2(unused, connection.fileno(), inheritable=False)
        os.close(unused)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_in_child)

"""Connections that a forked child has from its parent: their descriptors are replaced there.

The child must not keep a subscription open, as its end shows the parent's death. If a signal
handler forks in the middle of an exchange, the copy of it must not read the parent's reply.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """A connection, open or closed."""

    def fileno(self) -> int:
        """Its descriptor; raises an exception, or returns -1, if it is closed."""


#: any thread
_connections: WeakSet[Inherited] = WeakSet()


def add(connection: Inherited) -> None:
    """Have the descriptor of a connection replaced in all children that are forked later."""
    _connections.add(connection)


def _after_in_child() -> None:
    """Replace the descriptors. Their numbers stay in use, as an event loop may know them."""
    found = list(_connections)
    _connections.clear()
    if found:
        unused = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in found:
            with suppress(Exception):  # it was closed
                os.dup2(unused, connection.fileno(), inheritable=False)
        os.close(unused)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_in_child)

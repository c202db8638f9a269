"""The idle private connections of an asyncio client."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.task_connection import TaskConnection

#: The most idle connections. More than these are open only while that many exchanges are under way.
MAX_IDLE = 16
#: Seconds without use after which a connection is closed, if the client has another idle one.
UNUSED = 60.0


class IdleConnections:
    """Private connections that no exchange uses; all batchers of a client share them.

    They are closed with the client. A release after that opens one only for its own exchange; the
    next acquisition keeps one again. Used by one event loop.

    Attributes:
        is_closed: the client was closed, and not used again.
    """

    __slots__ = ("__weakref__", "_idle", "is_closed")

    def __init__(self) -> None:
        self._idle: list[TaskConnection] = []  # the one that was used last is last
        self.is_closed = False

    def usable(self, pool: Any) -> TaskConnection | None:
        """Remove and return a connection that is in order and leads where the pool does now."""
        while self._idle:
            found = self._idle.pop()
            if found.serves(pool):
                return found
            found.close()
        return None

    def keep(self, connection: TaskConnection) -> None:
        """Keep a connection for other exchanges, unless the client was closed."""
        idle = self._idle
        if self.is_closed or len(idle) >= MAX_IDLE:
            connection.close()
            return
        idle.append(connection)
        if len(idle) > 1:
            connection.last_used = monotonic()
            if idle[0].last_used < connection.last_used - UNUSED:
                idle.pop(0).close()

    async def keep_unused(self, connection: TaskConnection) -> None:
        """Keep a connection whose task was cancelled while it was opened."""
        self.keep(connection)

    def drop(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def close_with_pool(self) -> None:
        """Close the idle connections, and keep none until the next acquisition."""
        self.is_closed = True
        self.drop()

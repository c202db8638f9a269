"""The idle private connections of an asyncio client."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from redis_lock_decorators._io.background.timers import LoopTimer
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.exclusive_limit import ExclusiveLimit
from redis_lock_decorators._io.transport.origins import IdleFollower
from redis_lock_decorators._io.transport.task_connection import TaskConnection

#: The most idle connections. More than these are open only while that many exchanges are under way.
MAX_IDLE = 16
#: Seconds without use after which a connection is closed, if the client has another idle one.
UNUSED = 60.0
#: The same for the connection over which leases of a closed client are renewed.
UNUSED_AFTER_CLOSE = 2.0


class IdleConnections(IdleFollower):
    """Private connections that no exchange uses; all batchers of a client share them.

    They are closed with the client. A release after that opens one only for its own exchange, a
    renewal keeps one for a short time; the next acquisition keeps one again. Used by one event
    loop, except that the pool may be closed and the client be deleted on any thread.

    Attributes:
        exclusive: limits those that one exchange or transaction uses alone.
        openings: those that are still being opened, and whose callers have given up.
    """

    __slots__ = ("_idle", "_timer", "exclusive", "openings")

    def __init__(self) -> None:
        super().__init__()
        self.exclusive = ExclusiveLimit()
        self._timer: LoopTimer | None = None
        #: any thread
        self.openings: list[Any] = []
        self._idle: list[TaskConnection] = []  # the one that was used last is last

    def usable(self, pool: Any) -> TaskConnection | None:
        """Remove and return a connection that is in order and leads where the pool does now."""
        while (found := self._last()) is not None:
            if found.serves(pool):
                return found
            found.close()
        return None

    def keep(self, connection: TaskConnection) -> None:
        """Keep a connection for other exchanges, unless the client was closed."""
        idle = self._idle
        if self._closed is self._followed or len(idle) >= MAX_IDLE:
            connection.close()
            return
        idle.append(connection)
        if self.is_closed:  # by another thread in the meantime
            self.drop()
        elif len(idle) > 1:
            connection.last_used = monotonic()
            self._close_unused(connection.last_used - UNUSED)

    def keep_for_renewals(self, connection: TaskConnection) -> None:
        """Keep a connection of a closed client for its next renewal, if that follows soon."""
        connection.last_used = monotonic()
        self.drop()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = LoopTimer(self._end_renewals)
        self._timer.set(connection.last_used + UNUSED_AFTER_CLOSE)

    def _end_renewals(self) -> None:
        """Close the connection of a closed client if no renewal has used it for a while."""
        if self._timer is None or not self.is_closed or not self._idle:
            return
        end = self._idle[-1].last_used + UNUSED_AFTER_CLOSE
        if end <= monotonic():
            self.drop()
        else:
            self._timer.set(end)

    def drop(self) -> None:
        """Close the idle connections, also those that are being opened and nobody waits for."""
        while (found := self._last()) is not None:
            found.close()
        with suppress(IndexError):  # another thread took the last one
            while self.openings:
                self.openings.pop().cancel()

    def close_with_client(self) -> None:
        """Close the idle connections of a client that is freed, on any thread."""
        self._closed = self._followed
        self.drop()

    def _close_unused(self, since: float) -> None:
        """Close the first connection if it was not used since then."""
        with suppress(IndexError):  # another thread took it
            if self._idle[0].last_used < since:
                self._idle.pop(0).close()

    def _last(self) -> TaskConnection | None:
        """Remove and return the last connection, if there is one."""
        try:
            return self._idle.pop()
        except IndexError:  # also if another thread took it
            return None

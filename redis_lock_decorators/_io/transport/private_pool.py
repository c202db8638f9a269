"""Connections of our own to a client's server.

Beside the client's pool, for three reasons: a lock is let go even while the work holds all of the
pool's connections; a request ends when the caller's wait ends, whatever time-outs and retries
the client has; and a connection whose exchange was interrupted is dropped, so that its late
reply is never read as another command's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.origins import is_elsewhere, origin
from redis_lock_decorators._io.transport.sockets import BlockingSocket

#: Idle connections kept; more are open only while that many requests are under way.
KEPT = 16


class PrivatePool:
    """Connections made like those of a client's pool, each used by one request at a time."""

    __slots__ = ("_idle",)

    def __init__(self) -> None:
        self._idle: list[BlockingSocket] = []

    def exchange(self, pool: Any, command: tuple[Any, ...], until: float) -> Any:
        """Send a command and return its reply; raise the client's TimeoutError at ``until``."""
        reply = self._send_batch(pool, packed(command), 1, until)[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def exchange_all(
        self, pool: Any, commands: Sequence[tuple[Any, ...]], until: float
    ) -> list[Any]:
        """The same for commands one after the other; an error reply is an item."""
        return self._send_batch(pool, b"".join(map(packed, commands)), len(commands), until)

    def _send_batch(self, pool: Any, data: bytes, count: int, until: float) -> list[Any]:
        wire = self._take(pool) or connected(pool, until)
        try:
            replies = wire.exchange(data, count, until)
        except BaseException:
            wire.close()
            self.drop()
            raise
        if not all(map(client_errors.keeps_connection, replies)):
            wire.close()
            self.drop()
        elif len(self._idle) < KEPT:
            self._idle.append(wire)
        else:
            wire.close()
        return replies

    def drop(self) -> None:
        """Close the idle connections."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:  # also where another thread took the last one
                return

    def _take(self, pool: Any) -> BlockingSocket | None:
        """An idle connection that is in order, to where the client's pool leads now.

        A request that left over a stale one may or may not have been done; so we look first.
        """
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:  # also where another thread took the last one
                return None
            if (
                not wire.is_stale()
                and wire.origin == origin(pool)
                and not is_elsewhere(wire.connection, pool)
            ):
                return wire
            wire.close()


def connected(pool: Any, until: float) -> BlockingSocket:
    """A new connection like those of a pool, opened by ``until``."""
    leads_to = origin(pool)  # before it is opened: what is dropped meanwhile may be where it leads
    opened = private_connection.opened(pool.connection_class, pool.connection_kwargs, until)
    return BlockingSocket(opened, leads_to)

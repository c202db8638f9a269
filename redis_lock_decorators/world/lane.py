"""Connections of our own to a client's server.

Beside the client's pool, for three reasons: a lock is let go even while the work holds all of the
pool's connections; a request ends when the caller's wait ends, whatever time-outs and retries
the client has; and a connection whose exchange was interrupted is dropped, so that its late
reply is never read as another command's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis_lock_decorators.world import failures, timeouts
from redis_lock_decorators.world.wire import packed

#: The longest wait for a reply, in seconds, where the client itself would wait for ever.
PATIENCE = 5.0
#: A wait shortened by less than this is not worth the system calls that shorten it.
SLACK = 0.25
#: Idle connections kept; more are open only while that many requests are under way.
KEPT = 16


class Lane:
    """Connections made like those of a client's pool, each used by one request at a time."""

    __slots__ = ("_idle",)

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def exchange(self, pool: Any, command: tuple[Any, ...], until: float) -> Any:
        """Send a command and return its reply; raise the client's TimeoutError at ``until``."""
        reply = self._carry(pool, packed(command), 1, until)[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def exchange_all(
        self, pool: Any, commands: Sequence[tuple[Any, ...]], until: float
    ) -> list[Any]:
        """The same for commands one after the other; an error reply is an item."""
        return self._carry(pool, b"".join(map(packed, commands)), len(commands), until)

    def _carry(self, pool: Any, data: bytes, count: int, until: float) -> list[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connected(pool, until)
        try:
            connection.send_packed_command([data])
            replies = [_reply(connection, until)]
            while len(replies) < count:
                replies.append(_reply(connection, until))
        except BaseException as error:
            connection.disconnect()
            self.drop()
            if timeouts.was_ended_by_kernel(error):
                raise failures.no_reply(connection) from error
            raise
        if len(self._idle) < KEPT:
            self._idle.append(connection)
        else:
            connection.disconnect()
        return replies

    def drop(self) -> None:
        """Close the idle connections."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                return
            connection.disconnect()


def connected(pool: Any, until: float) -> Any:
    """A new connection like those of a pool, which waits for replies for ``PATIENCE`` at most."""
    left = until - time.monotonic()
    if left + SLACK < PATIENCE:
        # A connection keeps its time-outs: the one that must answer this soon only knocks.
        _connected(pool, max(0.001, left)).disconnect()
    connection = _connected(pool, PATIENCE)
    timeouts.leave_to_kernel(connection)
    return connection


def _connected(pool: Any, patience: float) -> Any:
    return opened(partial(pool.connection_class, **pool.connection_kwargs), patience)


def opened(make: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """A new connection, which waits for what it does for ``patience`` seconds at most."""
    connection = make()
    if hasattr(connection, "retry"):  # not before redis-py 4
        connection.retry = _no_retry(connection)
    for limit in ("socket_timeout", "socket_connect_timeout"):
        if hasattr(connection, limit):  # a Unix socket lacks the second
            setattr(connection, limit, min(getattr(connection, limit) or patience, patience))
    try:
        connection.connect()
    except BaseException:
        connection.disconnect()
        raise
    return connection


def _reply(connection: Any, until: float) -> Any:
    left = until - time.monotonic()
    if left + SLACK < connection.socket_timeout and not connection.can_read(timeout=max(0.0, left)):
        raise failures.no_reply(connection)
    return read(connection)


def read(connection: Any) -> Any:
    """The next reply on a connection; an error that the server replies with is returned."""
    try:
        return connection.read_response()
    except Exception as error:
        if failures.is_reply(error):
            return error
        raise


def _no_retry(connection: Any) -> Any:
    retry, backoff = (failures.part_of(connection, part) for part in ("retry", "backoff"))
    return retry.Retry(backoff.NoBackoff(), 0)

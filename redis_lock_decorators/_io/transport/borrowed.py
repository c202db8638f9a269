"""Connections borrowed from an asyncio client's pool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.private_connection import once
from redis_lock_decorators._io.transport.sockets import readable

#: Seconds to wait for a pool with all connections in use, before one is opened outside of it.
PATIENCE = 0.02
#: The longest wait for a reply, in seconds: half of an outage, which leaves time for another
#: attempt on another connection.
REPLY_TIMEOUT = OUTAGE / 2


class BorrowedConnection:
    """A connection without timeouts of its own; they are restored when it is returned.

    Args:
        pool: the pool that owns it; None if it was opened outside of the pool.
    """

    __slots__ = ("_has_input", "_pool", "_socket_timeout", "_writer", "connection")

    def __init__(self, connection: Any, pool: Any) -> None:
        self.connection = connection
        self._pool = pool
        self._socket_timeout = connection.socket_timeout
        self._writer: Any = None  # the one that _has_input checks
        self._has_input: Callable[[float], object]
        connection.socket_timeout = None

    @property
    def is_pooled(self) -> bool:
        """Whether the pool closes it with the client."""
        return self._pool is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed on this side: by the client, unless ``abort`` was called."""
        return self.connection._reader is None

    @property
    def patience(self) -> float:
        """Seconds to wait for a reply: the client's own timeout, or less."""
        return min(self._socket_timeout or REPLY_TIMEOUT, REPLY_TIMEOUT)

    def is_usable(self) -> bool:
        """Whether a request may be sent on it after it was idle.

        Not if either side closed it, if the client wants to reconnect, or if its pool has found
        another master.
        """
        connection, pool = self.connection, self._pool
        reader, writer = connection._reader, connection._writer
        if reader is None or writer is None or reader.at_eof() or writer.is_closing():
            return False
        master = getattr(pool, "master_address", None)
        if master is not None and master != (connection.host, connection.port):
            return False
        if self._has_unread_input(writer):
            return False
        should_reconnect = getattr(connection, "should_reconnect", None)
        return should_reconnect is None or not should_reconnect()

    def abort(self) -> None:
        """Close it in one step, whatever uses it and wherever the caller is interrupted."""
        abort(self.connection)
        self._restore()

    async def give_back(self) -> None:
        """Return it to its pool; may be called again after an interrupt."""
        connection, pool = self.connection, self._pool
        writer = connection._writer
        if pool is None or (writer is not None and writer.is_closing()):
            await connection.disconnect(nowait=True)
        self._restore()
        if pool is not None and connection in getattr(pool, "_in_use_connections", (connection,)):
            await pool.release(connection)

    def _has_unread_input(self, writer: Any) -> bool:
        """Whether there is input though no reply is due, as when the server has closed it.

        An event loop that was blocked, even only since the last reply, has not read that yet.
        """
        if writer is not self._writer:
            self._writer, self._has_input = writer, _input_check(writer)
        return bool(self._has_input(0))

    def _restore(self) -> None:
        if self.connection.socket_timeout is None:
            self.connection.socket_timeout = self._socket_timeout


async def borrow(pool: Any, name: tuple[str, ...], until: float) -> BorrowedConnection:
    """Borrow a connection of the pool; opens one outside of it if all are in use.

    They may be in use until the lock is released. The caller enforces ``until``.

    Args:
        name: the command's name, where the pool requires it.
    """
    left = until - monotonic()
    can_get = getattr(pool, "can_get_connection", None)
    if can_get is not None and not can_get():
        left = min(left, PATIENCE)
    try:
        async with timeout(left / 2):  # other tasks may take all of them in the meantime
            with _without_retries(pool):
                return BorrowedConnection(await pool.get_connection(*name), pool)
    except asyncio.TimeoutError:
        pass
    except Exception as error:
        if not client_errors.is_used_up(error):
            failure = client_errors.meant(pool, error)
            raise failure from failure.__cause__
    return BorrowedConnection(await _opened_outside(pool), None)


@contextlib.contextmanager
def _without_retries(pool: Any) -> Iterator[None]:
    """Have the pool open its next connection in one attempt, instead of retrying for seconds.

    Otherwise the reason for the missing reply is unknown here, and an acquisition that must not
    wait would wait.
    """
    connection = _next(pool)
    if connection is None or connection._reader is not None or not hasattr(connection, "retry"):
        yield
        return
    usual, connection.retry = connection.retry, once(connection)
    try:
        yield
    finally:
        connection.retry = usual


def _next(pool: Any) -> Any:
    """The connection that the pool will most likely return, created now if it has none."""
    idle, make = (
        getattr(pool, name, None) for name in ("_available_connections", "make_connection")
    )
    if isinstance(idle, list) and not idle and make is not None and pool.can_get_connection():
        idle.append(make())
    return idle[-1] if isinstance(idle, list) and idle else None


def abort(connection: Any) -> None:
    """Close a connection in one step; tasks that read or write on it fail."""
    writer = connection._writer
    if writer is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            writer.transport.abort()


def fail_waiting(connection: Any) -> None:
    """Notify tasks that read or write on a connection that it is closed.

    Its transport does so by a callback of the event loop, which a signal handler's exception may
    lose. A second notification has no effect.
    """
    writer = connection._writer
    find = None if writer is None else getattr(writer.transport, "get_protocol", None)
    protocol = None if find is None else find()  # None: it was notified
    if protocol is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            protocol.connection_lost(None)


def _input_check(writer: Any) -> Callable[[float], object]:
    """A function that waits some milliseconds for input, without the event loop."""
    plain = writer.get_extra_info("socket")
    if plain is None:
        return lambda milliseconds: False
    if plain.fileno() < 0:
        return lambda milliseconds: True
    return readable(plain)


async def _opened_outside(pool: Any) -> Any:
    connection = pool.connection_class(**pool.connection_kwargs)
    try:
        if hasattr(connection, "retry"):
            connection.retry = once(connection)
        await connection.connect()
    except BaseException:
        abort(connection)
        await connection.disconnect(nowait=True)
        raise
    return connection

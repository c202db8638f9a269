"""Connections of a client's pool while they are in our hands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from redis_lock_decorators._flow.requests import OUTAGE
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.private_connection import once
from redis_lock_decorators._io.transport.sockets import readable

#: Seconds to wait for a pool whose connections are all in use, before one is made beside it.
PATIENCE = 0.02
#: The longest wait for a reply, in seconds: half of an outage, so that there is time for another
#: try on another connection.
SILENCE = OUTAGE / 2


class BorrowedConnection:
    """A connection without time-outs of its own; what was changed on it is undone at the end.

    Args:
        pool: where it belongs; None if it was made beside the pool.
    """

    __slots__ = ("_look", "_looked_at", "_pool", "_socket_timeout", "connection")

    def __init__(self, connection: Any, pool: Any) -> None:
        self.connection = connection
        self._pool = pool
        self._socket_timeout = connection.socket_timeout
        self._looked_at: Any = None
        self._look: Callable[[float], object]
        connection.socket_timeout = None

    @property
    def is_of_pool(self) -> bool:
        """Whether the pool closes it with the client."""
        return self._pool is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed on our side, by the client, unless we did that."""
        return self.connection._reader is None

    @property
    def patience(self) -> float:
        """Seconds to wait for a reply: the client's own time-out, or less."""
        return min(self._socket_timeout or SILENCE, SILENCE)

    def is_usable(self) -> bool:
        """Whether a request may leave on it, though it was idle.

        Not if either side closed it, or the client wants to, or its pool has learnt of another
        master.
        """
        connection, pool = self.connection, self._pool
        reader, writer = connection._reader, connection._writer
        if reader is None or writer is None or reader.at_eof() or writer.is_closing():
            return False
        master = getattr(pool, "master_address", None)
        if master is not None and master != (connection.host, connection.port):
            return False
        if self._has_news(writer):
            return False
        is_unwanted = getattr(connection, "should_reconnect", None)
        return is_unwanted is None or not is_unwanted()

    def spoil(self) -> None:
        """Close it at once, whatever is under way on it and however the caller is interrupted."""
        abort(self.connection)
        self._restore()

    async def end(self) -> None:
        """Give it back to its pool; may be called again if it was interrupted."""
        connection, pool = self.connection, self._pool
        writer = connection._writer
        if pool is None or (writer is not None and writer.is_closing()):
            await connection.disconnect(nowait=True)
        self._restore()
        if pool is not None and connection in getattr(pool, "_in_use_connections", (connection,)):
            await pool.release(connection)

    def _has_news(self, writer: Any) -> bool:
        """Whether there is something to read, though no reply is due: its end.

        An event loop that was blocked, if only since the last reply, has not seen that.
        """
        if writer is not self._looked_at:
            self._looked_at, self._look = writer, _news(writer)
        return bool(self._look(0))

    def _restore(self) -> None:
        if self.connection.socket_timeout is None:
            self.connection.socket_timeout = self._socket_timeout


async def borrow(pool: Any, name: tuple[str, ...], until: float) -> BorrowedConnection:
    """A connection of the pool, or one beside it if all are in use: maybe until we let go.

    ``name`` is what the pool wants to be told. The caller sees to it that this ends at ``until``.
    """
    left = until - monotonic()
    has_some = getattr(pool, "can_get_connection", None)
    if has_some is not None and not has_some():
        left = min(left, PATIENCE)
    try:
        async with timeout(left / 2):  # it may still be used up by then
            with _tried_once(pool):
                return BorrowedConnection(await pool.get_connection(*name), pool)
    except asyncio.TimeoutError:
        pass
    except Exception as error:
        if not client_errors.is_used_up(error):
            failure = client_errors.meant(pool, error)
            raise failure from failure.__cause__
    return BorrowedConnection(await _beside(pool), None)


@contextlib.contextmanager
def _tried_once(pool: Any) -> Iterator[None]:
    """Have the pool open its next connection or fail, where it would try again for seconds.

    Its client may bear with that. Here it is not known then why no reply comes, and who waits for
    nothing would wait.
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
    """The connection that the pool will most likely give, made now if it has none."""
    idle, make = (
        getattr(pool, name, None) for name in ("_available_connections", "make_connection")
    )
    if isinstance(idle, list) and not idle and make is not None and pool.can_get_connection():
        idle.append(make())
    return idle[-1] if isinstance(idle, list) and idle else None


def abort(connection: Any) -> None:
    """Close a connection at once: whoever reads or writes on it fails."""
    writer = connection._writer
    if writer is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            writer.transport.abort()


def fail_waiting(connection: Any) -> None:
    """Tell whoever reads or writes on a connection that it is closed.

    Its transport does so by one call of the event loop, which an exception from outside may cut
    off; who is told twice takes no notice.
    """
    writer = connection._writer
    find = None if writer is None else getattr(writer.transport, "get_protocol", None)
    protocol = None if find is None else find()  # None: it was told
    if protocol is not None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            protocol.connection_lost(None)


def _news(writer: Any) -> Callable[[float], object]:
    """A look for something to read, past the event loop."""
    plain = writer.get_extra_info("socket")
    if plain is None:
        return lambda milliseconds: False
    if plain.fileno() < 0:
        return lambda milliseconds: True
    return readable(plain)


async def _beside(pool: Any) -> Any:
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

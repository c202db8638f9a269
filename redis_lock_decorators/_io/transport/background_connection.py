"""A private connection of an event loop to a blocking client's server."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import ref

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.batch import ends_lease
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.loop_connection import LoopConnection
from redis_lock_decorators._io.transport.origins import Origin, follow, origin
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._io.transport.thread_calls import NoThread, awaitable, in_thread

#: Seconds after which a connection that is still being opened may never be open.
OVERDUE = 1.0
#: The most connections that are being opened at the same time for one client.
MAX_OPENINGS = 3
#: Seconds after which a connection that is still being opened no longer counts for that.
FORGOTTEN = 2 * private_connection.PATIENCE
#: Seconds for which the event loop itself waits for a connection if no thread can be started.
BRIEF = 0.5


class ConnectionTransport:
    """A private connection, opened when it is first needed.

    Requests are sent immediately, also while others are under way. A connection that opens too
    late for one request serves the next one, and so does a connection with a late reply unless
    another one opens first: over a slow network there may be no time for more. If the server
    accepts no connection, as at its limit of clients, an idle one of the client's threads is used;
    so it is if a new one brings no reply in half of a request's time, as when a resolver is silent.

    Args:
        idle: the private connections of the client's threads.

    Attributes:
        pool: the client's pool, whose parameters connections are opened with.
    """

    may_resend = opens_connections = False

    def __init__(self, pool: Any, idle: PrivatePool | None = None) -> None:
        self.pool = pool
        self._idle: Callable[[], PrivatePool | None] = _none if idle is None else ref(idle)
        self._connection: LoopConnection | None = None
        self._openings: dict[asyncio.Future[Any], float] = {}
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        data, connection = b"".join(map(packed, commands)), None
        first = self._latest_first(until)
        try:
            async with timeout(first - monotonic()):
                connection = await self._opened()
                replies = await connection.exchange(data, len(commands))
        except asyncio.TimeoutError:
            found = None
            # A release that was sent may have been run: a second copy would find another holder.
            if first < until and not (connection and any(map(ends_lease, commands))):
                found = await self._exchanged_idle(data, len(commands), until)
            if found is not None:
                return found
            failure = self.no_reply()
            if connection is None:
                client_errors.mark_unsent(failure)
            raise failure from None
        except Exception:
            self._drop(connection)
            if connection is None or not connection.is_accepted:
                found = await self._exchanged_idle(data, len(commands), until)
                if found is not None:
                    return found
            raise
        if all(map(client_errors.keeps_connection, replies)):
            connection.is_accepted = True
            return replies
        self._drop(connection)
        if connection.is_accepted or client_errors.are_elsewhere(replies):
            return replies
        return await self._exchanged_idle(data, len(commands), until) or replies

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self.pool)

    async def drop_idle_connections(self) -> None:
        self._drop(self._connection)

    def close(self) -> None:
        """Close the connection, also one that is being opened."""
        self._is_closed = True
        self._drop(self._connection)

    def close_with_pool(self, watch: object) -> None:
        """Close the connection once no caller waits for a reply. Called on any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._usable)

    def _latest_first(self, until: float) -> float:
        """When an idle connection is tried if a new one has brought no reply."""
        usable, idle = self._usable(), self._idle()
        if idle is None or not idle.has_idle or (usable is not None and usable.is_accepted):
            return until
        return (monotonic() + until) / 2

    async def _exchanged_idle(self, data: bytes, count: int, until: float) -> list[Any] | None:
        """The replies to commands sent over an idle connection of the client's threads, if any."""
        idle = self._idle()
        if idle is None:
            return None
        try:
            async with timeout(until - monotonic()):
                return await in_thread(partial(idle.exchange_idle, self.pool, data, count, until))
        except NoThread:
            return None
        except asyncio.TimeoutError:
            raise self.no_reply() from None

    def _drop(self, connection: LoopConnection | None) -> None:
        if connection is not None:
            connection.close()
            if self._connection is connection:
                self._connection = None

    async def _opened(self) -> LoopConnection:
        """A connection without an overdue reply."""
        if self._usable() is None and self._needs_another():
            self._open()
        while (usable := self._usable()) is None:
            if self._connection is None and not self._openings:  # the pool leads elsewhere again
                self._open()
            changes: list[asyncio.Future[Any]] = list(self._openings)
            if self._connection is not None:
                changes.append(self._connection.change)
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            if self._connection is None and not self._openings:
                raise next(filter(None, map(_failure, changes)), self.no_reply())
        return usable

    def _usable(self) -> LoopConnection | None:
        if self._connection is not None and not self._connection.serves(self.pool):
            self._connection.retire()
            self._connection = None
        return None if self._connection is None or self._connection.is_late else self._connection

    def _needs_another(self) -> bool:
        """Whether to open a connection in addition to those that are being opened.

        One that hangs may lead to a server that is gone, and a new one to the server that replaces
        it. One that hangs for longer than its timeouts, as in a user's hook, does not count.
        """
        now = monotonic()
        last = max(self._openings.values(), default=-math.inf)
        counted = [began for began in self._openings.values() if now < began + FORGOTTEN]
        return len(counted) < MAX_OPENINGS and now >= last + OVERDUE

    def _open(self) -> None:
        self._is_closed = False
        opening = asyncio.ensure_future(self._connect())
        self._openings[opening] = monotonic()
        opening.add_done_callback(self._use)

    async def _connect(self) -> tuple[Any, Origin]:
        pool, leads_to = self.pool, origin(self.pool)
        follow(pool, self)
        connect = partial(private_connection.opened, pool.connection_class, pool.connection_kwargs)
        within = partial(connect, monotonic() + private_connection.PATIENCE)
        try:
            return await in_thread(within, lambda late: late.disconnect()), leads_to
        except NoThread:
            try:
                return connect(monotonic() + BRIEF), leads_to
            except BaseException as error:
                failure = awaitable(error)
                raise failure from failure.__cause__

    def _use(self, opening: asyncio.Future[Any]) -> None:
        self._openings.pop(opening, None)
        if opening.cancelled() or opening.exception() is not None:
            return
        connection, leads_to = opening.result()
        if self._is_closed or (self._connection is not None and not self._connection.is_late):
            connection.disconnect()
            return
        if self._connection is not None:
            self._connection.retire()
        self._connection = LoopConnection(connection, leads_to)


def _none() -> None:
    """A substitute for a weak reference."""


def _failure(work: asyncio.Future[Any]) -> BaseException | None:
    """The error of work that has ended."""
    return asyncio.CancelledError() if work.cancelled() else work.exception()

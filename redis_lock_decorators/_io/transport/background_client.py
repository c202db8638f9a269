"""Requests to a blocking client's server from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.worker import NAME, running_worker
from redis_lock_decorators._io.client_methods import disconnect
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.loop_connection import LoopConnection
from redis_lock_decorators._io.transport.origins import Origin, follow, origin

T = TypeVar("T")

#: The name of the thread of a blocking call.
CALL = f"{NAME} call"
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
    another one opens first: over a slow network there may be no time for more.

    Attributes:
        pool: the client's pool, whose parameters connections are opened with.
    """

    may_resend = False

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self._connection: LoopConnection | None = None
        self._openings: dict[asyncio.Future[Any], float] = {}
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        data, connection = b"".join(map(packed, commands)), None
        try:
            async with timeout(until - monotonic()):
                connection = await self._opened()
                replies = await connection.exchange(data, len(commands))
        except asyncio.TimeoutError:
            failure = self.no_reply()
            if connection is None:
                client_errors.mark_unsent(failure)
            raise failure from None
        except Exception:
            self._drop(connection)
            raise
        if not all(map(client_errors.keeps_connection, replies)):
            self._drop(connection)
        return replies

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
            return connect(monotonic() + BRIEF), leads_to

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


class ThreadTransport:
    """A blocking client's own methods, called on a separate thread.

    There is one call at a time per node: if it hangs, the next one waits for it.
    """

    may_resend = True

    def __init__(self, client: Any, client_state: ClientState[Any]) -> None:
        self._client = client
        self._client_state = client_state
        self._calls: dict[object, asyncio.Future[Any]] = {}

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        node = self._client_state.node(self._client, commands[0])
        try:
            async with timeout(until - monotonic()):
                while (call := self._calls.get(node)) is not None and not call.done():
                    await asyncio.wait([call])
                call = asyncio.ensure_future(in_thread(partial(replies_of, self._client, commands)))
                self._calls[node] = call
                replies: list[Any] = await asyncio.shield(call)
                return replies
        except asyncio.TimeoutError:
            raise self.no_reply() from None

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self._client)

    async def drop_idle_connections(self) -> None:
        await in_thread(partial(disconnect, self._client))

    def close(self) -> None:
        """Close nothing: all connections belong to the client."""


class NoThread(RuntimeError):
    """The system allows no more threads, or the interpreter is shutting down."""


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """Make a blocking call on a separate thread and return its result.

    If the caller was cancelled by then, ``unwanted`` is called with the result.

    Raises:
        NoThread: no thread can be started, and there is no spare one.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def set_result(value: T | None, error: BaseException | None) -> None:
        if result.done():
            if value is not None and unwanted is not None:
                unwanted(value)
        elif error is not None:
            result.set_exception(_awaitable(error))
        else:
            result.set_result(cast(T, value))

    def call() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(set_result, value, failure)
        except RuntimeError:  # the event loop is closed, and its tasks with it
            if value is not None and unwanted is not None:
                unwanted(value)

    try:
        threading.Thread(target=call, name=CALL, daemon=True).start()
    except RuntimeError as error:
        worker = running_worker()
        if worker is None or not worker.run_on_spare(CALL, call):
            raise NoThread(str(error)) from error
    return await result


def _awaitable(error: BaseException) -> BaseException:
    """An error that a coroutine can raise; a StopIteration would only end it."""
    if not isinstance(error, StopIteration):
        return error
    found = client_errors.caused(RuntimeError(f"a hook raised {error!r}"), error)
    return found if client_errors.was_sent(error) else client_errors.mark_unsent(found)


def _failure(work: asyncio.Future[Any]) -> BaseException | None:
    """The error of work that has ended."""
    return asyncio.CancelledError() if work.cancelled() else work.exception()

"""Requests to a blocking client's server from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from weakref import ref

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.worker import NAME, running_worker
from redis_lock_decorators._io.client_methods import disconnect
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.hook_errors import of_hook
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import private_connection, single_tries
from redis_lock_decorators._io.transport.batch import Redirection
from redis_lock_decorators._io.transport.client_calls import (
    own_replies_of,
    replies_at,
    replies_by_own_method,
)
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.loop_connection import LoopConnection
from redis_lock_decorators._io.transport.origins import Origin, follow, origin
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._rules.redaction import described

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
    another one opens first: over a slow network there may be no time for more. If the server
    accepts no connection, as at its limit of clients, an idle one of the client's threads is used.

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
                failure = _awaitable(error)
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


class ThreadTransport:
    """A blocking client's own methods, called on a separate thread.

    There is one call at a time per node: if it hangs, the next one waits for it.
    """

    may_resend = True
    opens_connections = False

    def __init__(
        self,
        client: Any,
        client_state: ClientState[Any],
        redirections_left: int = single_tries.MAX_REDIRECTIONS,
    ) -> None:
        self._client = client
        self._client_state = client_state
        self._redirections_left = redirections_left
        self._calls: dict[object, asyncio.Future[Any]] = {}

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        node = self._client_state.node(self._client, commands[0])
        replies = await self._called(node, partial(own_replies_of, self._client, commands), until)
        return self._redirected(replies)

    def _redirected(self, replies: list[Any]) -> list[Any]:
        """The replies, with a ``Redirection`` for each that another node has to give."""
        for number in single_tries.redirected(replies):
            replies[number] = self._redirection(replies[number])
        return replies

    def _redirection(self, reply: Any) -> Redirection:
        target = single_tries.target(self._client, reply)
        if target is None or not self._redirections_left:
            address = single_tries.address(reply)
            return Redirection(address, OwnMethodCalls(self, address))
        return Redirection(target, RedirectedCalls(self, target))

    async def _called(
        self, key: object, call_client: Callable[[], list[Any]], until: float
    ) -> list[Any]:
        """The result of a call on a separate thread, after that of an earlier one for this key."""
        try:
            async with timeout(until - monotonic()):
                while (call := self._calls.get(key)) is not None and not call.done():
                    await asyncio.wait([call])
                call = asyncio.ensure_future(in_thread(call_client))
                self._calls[key] = call
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


class RedirectedCalls(ThreadTransport):
    """Calls for commands that nodes have redirected to another one: only these wait for it.

    Args:
        parent: the transport that got the redirections.
        target: the other node.
    """

    def __init__(self, parent: ThreadTransport, target: single_tries.Target) -> None:
        left = parent._redirections_left - 1
        super().__init__(parent._client, parent._client_state, left)
        self._calls = parent._calls
        self._target = target

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        call = partial(replies_at, self._client, self._target, commands)
        return self._redirected(await self._called(self._target, call, until))


class OwnMethodCalls(ThreadTransport):
    """Calls of the client's own method, which finds the nodes of commands, one by one.

    Args:
        parent: the transport that got redirections which only that method can follow.
        key: the key of these calls.
    """

    def __init__(self, parent: ThreadTransport, key: object) -> None:
        super().__init__(parent._client, parent._client_state)
        self._calls = parent._calls
        self._key = key

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        return await single_tries.one_by_one(self._call, commands, until, self.no_reply)

    async def _call(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        call = partial(replies_by_own_method, self._client, commands)
        return await self._called(self._key, call, until)


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


def _awaitable(error: BaseException) -> Exception:
    """An error that a coroutine on the background thread can raise.

    A StopIteration would only end the coroutine, and an exit or a cancellation the thread or the
    task, which serve other clients too. No signal handler runs here, so a hook has raised it.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = client_errors.caused(RuntimeError(f"a hook raised {described(error)}"), error)
    of_hook(found)
    return found if client_errors.was_sent(error) else client_errors.mark_unsent(found)


def _none() -> None:
    """A substitute for a weak reference."""


def _failure(work: asyncio.Future[Any]) -> BaseException | None:
    """The error of work that has ended."""
    return asyncio.CancelledError() if work.cancelled() else work.exception()

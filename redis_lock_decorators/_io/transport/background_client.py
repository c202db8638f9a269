"""The ways from an event loop to a blocking client's server."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.worker import NAME, here
from redis_lock_decorators._io.client_state import ClientState, disconnect
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.loop_connection import LoopConnection
from redis_lock_decorators._io.transport.origins import Origin, origin

T = TypeVar("T")

#: What the thread of a blocking call is called.
CALL = f"{NAME} call"
#: Seconds after which a connection that is being opened may never be.
OVERDUE = 1.0
#: The most connections that are being opened at once for one client.
MOST_OPENINGS = 3
#: Seconds after which one that is being opened is not counted any more.
FORGOTTEN = 2 * private_connection.PATIENCE
#: Seconds for which the event loop itself waits for a connection, where no thread can.
BRIEF = 0.5


class ConnectionTransport:
    """Over a connection of our own, opened when it is needed or a little before.

    Requests leave at once, also while others are under way. A connection that is opened too late
    for a request serves the next, and so does one whose reply came too late, unless another is
    opened before: where the way is long, there may be no time for more.

    Attributes:
        pool: the client's, whose parameters connections are made with.
    """

    may_resend = False

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self._exchanges: LoopConnection | None = None
        self._openings: dict[asyncio.Future[Any], float] = {}
        self._is_closed = False

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        data, exchanges = b"".join(map(packed, commands)), None
        try:
            async with timeout(until - monotonic()):
                exchanges = await self._opened()
                replies = await exchanges.exchange(data, len(commands))
        except asyncio.TimeoutError:
            failure = self.no_reply()
            if exchanges is None:
                client_errors.unsent(failure)
            raise failure from None
        except Exception:
            self._drop(exchanges)
            raise
        if not all(map(client_errors.keeps_connection, replies)):
            self._drop(exchanges)
        return replies

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self.pool)

    async def drop_idle_connections(self) -> None:
        self._drop(self._exchanges)

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._is_closed = True
        self._drop(self._exchanges)

    def _drop(self, exchanges: LoopConnection | None) -> None:
        if exchanges is not None:
            exchanges.close()
            if self._exchanges is exchanges:
                self._exchanges = None

    async def _opened(self) -> LoopConnection:
        """A connection that answers, as far as is known."""
        if self._usable() is None and self._needs_another():
            self._open()
        while (usable := self._usable()) is None:
            if self._exchanges is None and not self._openings:  # it leads elsewhere already
                self._open()
            changes: list[asyncio.Future[Any]] = list(self._openings)
            if self._exchanges is not None:
                changes.append(self._exchanges.change)
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            if self._exchanges is None and not self._openings:
                raise next(filter(None, map(_failure, changes)), self.no_reply())
        return usable

    def _usable(self) -> LoopConnection | None:
        if self._exchanges is not None and not self._exchanges.serves(self.pool):
            self._drop(self._exchanges)
        return None if self._exchanges is None or self._exchanges.is_late else self._exchanges

    def _needs_another(self) -> bool:
        """Whether to open a connection beside those that are being opened.

        What hangs may lead to a server that is gone, where a new one would lead to its successor.
        What hangs for longer than its time-outs, as in a user's hook, is not counted.
        """
        now = monotonic()
        last = max(self._openings.values(), default=-math.inf)
        counted = [began for began in self._openings.values() if now < began + FORGOTTEN]
        return len(counted) < MOST_OPENINGS and now >= last + OVERDUE

    def _open(self) -> None:
        self._is_closed = False
        opening = asyncio.ensure_future(self._connection())
        self._openings[opening] = monotonic()
        opening.add_done_callback(self._take)

    async def _connection(self) -> tuple[Any, Origin]:
        pool, leads_to = self.pool, origin(self.pool)
        connect = partial(private_connection.opened, pool.connection_class, pool.connection_kwargs)
        within = partial(connect, monotonic() + private_connection.PATIENCE)
        try:
            return await in_thread(within, lambda late: late.disconnect()), leads_to
        except NoThread:
            return connect(monotonic() + BRIEF), leads_to

    def _take(self, opening: asyncio.Future[Any]) -> None:
        self._openings.pop(opening, None)
        if opening.cancelled() or opening.exception() is not None:
            return
        connection, leads_to = opening.result()
        if self._is_closed or (self._exchanges is not None and not self._exchanges.is_late):
            connection.disconnect()
            return
        if self._exchanges is not None:
            self._exchanges.retire()
        self._exchanges = LoopConnection(connection, leads_to)


class ThreadTransport:
    """By a blocking client's own methods, on a thread of its own while that takes.

    Never on two: where a call hangs, the next waits for it.
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
        """Nothing is open: connections are the client's."""


class NoThread(RuntimeError):
    """There are as many threads as the system allows, or the interpreter is going down."""


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """The result of a blocking call, made on a thread of its own.

    If nobody waits for it any more, ``unwanted`` is called with it there.

    Raises:
        NoThread: none can be started, and there is no spare one.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: BaseException | None) -> None:
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
            loop.call_soon_threadsafe(tell, value, failure)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            if value is not None and unwanted is not None:
                unwanted(value)

    try:
        threading.Thread(target=call, name=CALL, daemon=True).start()
    except RuntimeError as error:
        place = here()
        if place is None or not place.lend(CALL, call):
            raise NoThread(str(error)) from error
    return await result


def _awaitable(error: BaseException) -> BaseException:
    """The error as somebody can await it: a StopIteration would end the coroutine that does."""
    if not isinstance(error, StopIteration):
        return error
    found = client_errors.caused(RuntimeError(f"a hook raised {error!r}"), error)
    return found if client_errors.was_sent(error) else client_errors.unsent(found)


def _failure(work: asyncio.Future[Any]) -> BaseException | None:
    """Why a work failed that has ended."""
    return asyncio.CancelledError() if work.cancelled() else work.exception()

"""The ways from an event loop to a blocking client's server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from redis_lock_decorators.world import failures
from redis_lock_decorators.world.clients import Facts, disconnect, pipelined
from redis_lock_decorators.world.lane import connected, read
from redis_lock_decorators.world.timeouts import timeout
from redis_lock_decorators.world.wire import packed

T = TypeVar("T")


class LineCarrier:
    """Over a blocking connection of our own that the event loop waits on."""

    resends = False

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self._connection: Any = None

    async def carry(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        try:
            async with timeout(until - time.monotonic()):
                if self._connection is None:
                    connect = partial(connected, self.pool, until)
                    self._connection = await in_thread(connect, lambda late: late.disconnect())
                connection = self._connection
                connection.send_packed_command([b"".join(map(packed, commands))])
                return [await _reply(connection) for _ in commands]
        except asyncio.TimeoutError:
            self.close()
            raise self.no_reply() from None
        except BaseException:
            self.close()
            raise

    def no_reply(self) -> Exception:
        return failures.no_reply(self.pool)

    async def distrust(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


class ThreadCarrier:
    """By a blocking client's own methods, on a thread of its own while that takes.

    Never on two: where a call hangs, the next waits for it.
    """

    resends = True

    def __init__(self, client: Any, facts: Facts[Any]) -> None:
        self._client = client
        self._facts = facts
        self._calls: dict[object, asyncio.Future[Any]] = {}

    async def carry(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        node = self._facts.node(self._client, commands[0])
        try:
            async with timeout(until - time.monotonic()):
                while (call := self._calls.get(node)) is not None and not call.done():
                    await asyncio.wait([call])
                call = asyncio.ensure_future(in_thread(partial(self._call, commands)))
                self._calls[node] = call
                replies: list[Any] = await asyncio.shield(call)
                return replies
        except asyncio.TimeoutError:
            raise self.no_reply() from None

    def no_reply(self) -> Exception:
        return failures.no_reply(self._client)

    async def distrust(self) -> None:
        await in_thread(partial(disconnect, self._client))

    def close(self) -> None:
        """Nothing is open: connections are the client's."""

    def _call(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if len(commands) > 1:
            replies: list[Any] = pipelined(self._client, commands).execute(raise_on_error=False)
            return replies
        try:
            return [self._client.execute_command(*commands[0])]
        except Exception as error:
            return [error]


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """The result of a blocking call, made on a thread of its own.

    If nobody waits for it any more, ``unwanted`` is called with it there.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(value: T | None, error: BaseException | None) -> None:
        if result.done():
            if value is not None and unwanted is not None:
                unwanted(value)
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast(T, value))

    def call() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, value, failure)

    threading.Thread(target=call, name="redis_lock_decorators call", daemon=True).start()
    return await result


async def _reply(connection: Any) -> Any:
    while not connection.can_read(timeout=0):
        await _readable(connection._sock)
    return read(connection)


async def _readable(socket: Any) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(socket)

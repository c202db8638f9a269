"""Requests of tasks that are under way at the same time travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from redis_lock_decorators.world import failures
from redis_lock_decorators.world.wire import packed

#: The most requests that one trip takes.
LOAD = 512


class Carrier(Protocol):
    """A way to a client's server."""

    async def one(self, command: tuple[Any, ...]) -> Any:
        """Send a command and return its reply."""

    async def many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands together and return their replies; an error reply is an item."""


class Courier:
    """Carries one request directly, and those that come meanwhile together after it.

    Never more than one trip is under way, so a client's tasks share one connection (in a cluster,
    one for each node).
    """

    __slots__ = ("_busy", "_trips", "_waiting")

    def __init__(self) -> None:
        self._busy = False
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._trips: asyncio.Task[None] | None = None

    async def exchange(self, carrier: Carrier, command: tuple[Any, ...]) -> Any:
        """Send a command and return its reply, in the calling task if nothing is under way."""
        if self._busy:
            reply = asyncio.get_running_loop().create_future()
            self._waiting.append((command, reply))
            return await reply
        self._busy = True
        try:
            return await carrier.one(command)
        finally:
            if self._waiting:
                self._trips = asyncio.ensure_future(self._travel(carrier))
            else:
                self._busy = False

    async def _travel(self, carrier: Carrier) -> None:
        try:
            while self._waiting:
                load, self._waiting = self._waiting[:LOAD], self._waiting[LOAD:]
                await _deliver(carrier, [(command, to) for command, to in load if not to.done()])
                await asyncio.sleep(0)  # those who were served have their next request ready
        finally:
            self._busy = False
            for _, reply in self._waiting:  # the event loop is going down
                reply.cancel()


async def _deliver(
    carrier: Carrier, load: list[tuple[tuple[Any, ...], asyncio.Future[Any]]]
) -> None:
    try:
        replies = await carrier.many([command for command, _ in load]) if load else []
    except Exception as error:
        replies = [error] * len(load)
    except BaseException:
        for _, future in load:
            future.cancel()
        raise
    for (_, future), reply in zip(load, replies, strict=True):
        if future.done():
            continue
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)


class PoolCarrier:
    """Past ``execute_command``, on a connection borrowed from the client's pool."""

    __slots__ = ("_named", "_pool")

    def __init__(self, pool: Any, named: bool) -> None:
        self._pool = pool
        self._named = named

    async def one(self, command: tuple[Any, ...]) -> Any:
        (reply,) = await self.many([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        connection, give_back = await self._connection(commands[0][0])
        try:
            await connection.send_packed_command([b"".join([packed(c) for c in commands])])
            return [await _reply(connection) for _ in commands]
        except BaseException:
            # Replies may still be on the way: they must never be read as other commands'.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await give_back(connection)

    async def _connection(self, name: str) -> tuple[Any, Callable[[Any], Awaitable[object]]]:
        pool = self._pool
        try:
            found = await (pool.get_connection(name) if self._named else pool.get_connection())
        except Exception as error:
            if not failures.is_used_up(error):
                raise
            # The work holds all of the pool's connections, maybe until we let it go on.
            found = pool.connection_class(**pool.connection_kwargs)
            await found.connect()
            return found, type(found).disconnect
        return found, pool.release


class ClientCarrier:
    """By the client's own methods: a cluster's, or one that somebody wrapped."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    async def one(self, command: tuple[Any, ...]) -> Any:
        return await self._client.execute_command(*command)

    async def many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if len(commands) == 1:
            return [await self._one_or_error(commands[0])]
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    async def _one_or_error(self, command: tuple[Any, ...]) -> Any:
        try:
            return await self.one(command)
        except Exception as error:
            return error


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except Exception as error:
        if failures.is_reply(error):
            return error
        raise

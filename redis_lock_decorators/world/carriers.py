"""The two ways to an asyncio client's server: past its ``execute_command``, or through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from redis_lock_decorators.world import failures
from redis_lock_decorators.world.clients import pipelined
from redis_lock_decorators.world.courier import Courier, Trip
from redis_lock_decorators.world.timeouts import timeout
from redis_lock_decorators.world.wire import packed

#: A pool with fewer connections than this needs each of them for its owner's work.
SPARE = 10


class PoolCarrier:
    """Over one connection of the client's pool, kept for us while the client is open.

    Closed with the client. Its time-outs are ours: one timer for all instead of two a command.
    Where the pool is small, the connection is given back after each trip.
    """

    __slots__ = ("_courier", "_named", "pool")

    resends = False

    def __init__(self, courier: Courier, pool: Any, named: bool) -> None:
        self._courier = courier
        self.pool = pool
        self._named = named

    async def carry(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        connection = self._courier.kept
        if connection is None or not connection.is_connected:
            connection = await self._connection(commands[0][0], until)
        trip = self._courier.trip = Trip(connection, until)
        try:
            data = b"".join([packed(command) for command in commands])
            await connection.send_packed_command([data], check_health=False)
            return await _replies(connection, len(commands))
        except BaseException as error:
            # Replies may still be on the way: they must never be read as other commands'.
            self._courier.kept = None
            await connection.disconnect()
            await self._give_back(connection)
            if trip.cut and isinstance(error, Exception):
                raise self.no_reply() from error
            raise
        finally:
            self._courier.trip = None
            if self._courier.kept is None and connection.is_connected:
                await self._give_back(connection)

    def close(self) -> None:
        """Nothing is open but what is the client's."""

    def no_reply(self) -> Exception:
        return failures.no_reply(self.pool)

    async def distrust(self) -> None:
        kept, self._courier.kept = self._courier.kept, None
        if kept is not None:
            await kept.disconnect()
            await self._give_back(kept)

    async def _connection(self, name: str, until: float) -> Any:
        pool, kept = self.pool, self._courier.kept
        self._courier.kept = None
        if kept is not None:  # closed with the client, or by the server
            await self._give_back(kept)
        try:
            async with timeout(until - time.monotonic()):
                found = await (pool.get_connection(name) if self._named else pool.get_connection())
        except asyncio.TimeoutError:
            raise self.no_reply() from None
        except Exception as error:
            if not failures.is_used_up(error):
                raise
            return await self._extra(until)
        if getattr(pool, "max_connections", 0) >= SPARE:
            found.socket_timeout = None
            self._courier.kept = found
        return found

    async def _extra(self, until: float) -> Any:
        """A connection beside the pool: the work holds all of those, maybe until we let go."""
        found = self.pool.connection_class(**self.pool.connection_kwargs)
        try:
            async with timeout(until - time.monotonic()):
                await found.connect()
        except asyncio.TimeoutError:
            raise self.no_reply() from None
        return found

    async def _give_back(self, connection: Any) -> None:
        if connection in getattr(self.pool, "_in_use_connections", (connection,)):
            await self.pool.release(connection)
        else:
            await connection.disconnect()


class ClientCarrier:
    """By the client's own methods: a cluster's, or one that somebody wrapped."""

    __slots__ = ("_client",)

    resends = True

    def __init__(self, client: Any) -> None:
        self._client = client

    async def carry(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        try:
            async with timeout(until - time.monotonic()):
                if len(commands) == 1:
                    return [await self._one(commands[0])]
                return await self._many(commands)
        except asyncio.TimeoutError:
            raise self.no_reply() from None

    def close(self) -> None:
        """Nothing is open but what is the client's."""

    def no_reply(self) -> Exception:
        return failures.no_reply(self._client)

    async def distrust(self) -> None:
        disconnect = getattr(self._client, "disconnect_connection_pools", None)
        if disconnect is not None:
            await disconnect()
        elif not hasattr(self._client, "nodes_manager"):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def _one(self, command: tuple[Any, ...]) -> Any:
        try:
            return await self._client.execute_command(*command)
        except Exception as error:
            return error

    async def _many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if hasattr(self._client, "nodes_manager"):
            await self._client.initialize()
        replies: list[Any] = await pipelined(self._client, commands).execute(raise_on_error=False)
        return replies


async def _replies(connection: Any, count: int) -> list[Any]:
    replies: list[Any] = []
    read = connection.read_response
    for _ in range(count):
        try:
            replies.append(await read())
        except Exception as error:
            if not failures.is_reply(error):
                raise
            replies.append(error)
    return replies

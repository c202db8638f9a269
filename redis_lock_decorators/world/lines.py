"""Connections of our own that hear messages, in RESP2 where those are plain replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators.world.clients import address_of
from redis_lock_decorators.world.lane import opened
from redis_lock_decorators.world.relays import in_thread


class TaskLine:
    """Over an asyncio connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, *command: Any) -> None:
        await self._connection.send_command(*command)

    async def hear(self, tell: Callable[[list[Any]], None]) -> None:
        while True:
            tell(await self._connection.read_response())

    async def close(self) -> None:
        await self._connection.disconnect()


class ThreadLine:
    """Over a blocking connection that an event loop waits on."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, *command: Any) -> None:
        self._connection.send_command(*command)

    async def hear(self, tell: Callable[[list[Any]], None]) -> None:
        loop, socket = asyncio.get_running_loop(), self._connection._sock
        loop.add_reader(socket, self._drain, tell)
        try:
            self._drain(tell)
            await self._end
        finally:
            loop.remove_reader(socket)

    async def close(self) -> None:
        if not self._end.done():
            self._end.set_result(None)
        self._connection.disconnect()

    def _drain(self, tell: Callable[[list[Any]], None]) -> None:
        try:
            while not self._end.done() and self._connection.can_read(timeout=0):
                tell(self._connection.read_response())
        except Exception as error:
            if not self._end.done():
                self._end.set_exception(error)


async def task_line(client: Any, key: bytes) -> TaskLine:
    """A line from an asyncio client's connection parameters to the node of a key."""
    kind, parameters = address_of(client, key)
    connection = _hearing(kind, parameters)
    connection.socket_timeout = None
    try:
        await connection.connect()
    except BaseException:
        await connection.disconnect()
        raise
    return TaskLine(connection)


async def thread_line(client: Any, key: bytes) -> ThreadLine:
    """A line from a blocking client's connection parameters to the node of a key."""
    connect = partial(hearing_line, client, key)
    return ThreadLine(await in_thread(connect, lambda late: late.disconnect()))


def hearing_line(client: Any, key: bytes) -> Any:
    """A new connection to hear on, like a blocking client's to the node of a key."""
    kind, parameters = address_of(client, key)
    return opened(partial(_hearing, kind, parameters))


def _hearing(kind: Any, parameters: dict[str, Any]) -> Any:
    """A connection that gives bytes, and messages as replies."""
    # What redis-py 8 adds to be told of maintenance needs RESP3 and a pool.
    others = ("maint_", "orig_", "oss_cluster_maint_")
    own = {name: value for name, value in parameters.items() if not name.startswith(others)}
    own["decode_responses"] = False
    try:
        return kind(**{**own, "protocol": 2})
    except TypeError:  # before redis-py 5 there was no other
        return kind(**own)

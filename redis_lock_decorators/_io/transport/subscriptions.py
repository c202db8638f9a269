"""Connections of our own that hear messages, in RESP2 where those are plain replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.client_errors import is_reply
from redis_lock_decorators._io.client_state import address_of
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import cancellations, timeout
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.background_client import in_thread
from redis_lock_decorators._io.transport.borrowed import abort
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.origins import Origin, is_elsewhere, origin, task_origin
from redis_lock_decorators._io.transport.sockets import LoopSocket

#: Tells whether a connection leads to where its client's pool does now.
LeadsThere = Callable[[Any], bool]


class TaskSubscription:
    """Over an asyncio connection."""

    def __init__(self, connection: Any, leads_there: LeadsThere = bool) -> None:
        self._connection = connection
        self._leads_there = leads_there
        self._is_closed = False

    async def send(self, *command: Any) -> None:
        if not self._is_closed and not self._leads_there(self._connection):
            self.abort()
        if not self._is_closed:  # it would be opened again
            await self._connection.send_packed_command([packed(command)], check_health=False)

    async def receive(self, tell: Callable[[Any], None]) -> None:
        while not self._is_closed:
            try:
                reply = await self._connection.read_response()
            except Exception as error:
                if not is_reply(error):
                    raise
                reply = error
            tell(reply)

    async def close(self) -> None:
        self._is_closed = True
        await _drop(self._connection)

    def abort(self) -> None:
        self._is_closed = True
        abort(self._connection)


class ThreadSubscription:
    """Over a blocking client's connection, on an event loop."""

    def __init__(self, connection: Any, leads_there: LeadsThere = bool) -> None:
        self._wire = LoopSocket(connection)
        self._leads_there = leads_there
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, *command: Any) -> None:
        if not self._leads_there(self._wire.connection):
            self.abort()
        self._wire.send(packed(command))

    async def receive(self, tell: Callable[[Any], None]) -> None:
        self._wire.start(tell, self._fail)
        await self._end

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._wire.close()
        if not self._end.done():
            self._end.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)


async def task_subscription(client: Any, key: bytes) -> TaskSubscription:
    """A line from an asyncio client's connection parameters to the node of a key."""
    leads_there = lookout(client, task_origin)
    kind, parameters = address_of(client, key)
    connection = private_connection.made(kind, parameters)
    connection.socket_timeout = None
    cancels = cancellations()
    try:
        async with timeout(private_connection.PATIENCE):
            await connection.connect()
        if cancellations() > cancels:  # it was swallowed
            raise asyncio.CancelledError
    except BaseException as error:
        await _drop(connection)
        if isinstance(error, asyncio.TimeoutError):
            raise client_errors.no_reply(connection) from None
        raise
    return TaskSubscription(connection, leads_there)


async def find_nodes(client: Any, until: float) -> None:
    """Have a cluster's client that was not used yet ask which node has which slots."""
    try:
        async with timeout(until - monotonic()):
            await client.initialize()
    except asyncio.TimeoutError:
        raise client_errors.unsent(client_errors.no_reply(client)) from None
    except Exception as error:
        client_errors.unsent(error)
        raise


async def thread_subscription(client: Any, key: bytes) -> ThreadSubscription:
    """A line from a blocking client's connection parameters to the node of a key."""
    leads_there = lookout(client)
    connect = partial(subscription_connection, client, key)
    try:
        async with timeout(private_connection.PATIENCE):  # finding the address may take longer
            connection = await in_thread(connect, lambda late: late.disconnect())
    except asyncio.TimeoutError:
        raise client_errors.no_reply(client) from None
    return ThreadSubscription(connection, leads_there)


def lookout(client: Any, find: Callable[[Any], Origin] = origin) -> LeadsThere:
    """Tells later whether a connection that is opened now leads to where the client's pool does.

    A cluster's client is not asked: its nodes stay where they are, and slots are looked after
    elsewhere.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None or hasattr(client, "nodes_manager") or hasattr(pool, "nodes"):
        return bool
    leads_to = find(pool)

    def leads_there(connection: Any) -> bool:
        now = client.connection_pool
        return leads_to == find(now) and not is_elsewhere(connection, now)

    return leads_there


async def _drop(connection: Any) -> None:
    """Close a connection at once: TLS would wait for the other side to agree."""
    abort(connection)
    await connection.disconnect(nowait=True)


def subscription_connection(client: Any, key: bytes) -> Any:
    """A new connection to hear on, like a blocking client's to the node of a key."""
    return private_connection.opened(
        *address_of(client, key), monotonic() + private_connection.PATIENCE
    )

"""A simulated pool of an asyncio client; its connections return the replies that a test sets."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError


class Stream:
    """A connection's reader and writer."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport = self
        self.is_over = False
        self.has_input = False

    def abort(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def at_eof(self) -> bool:
        return self.is_over

    async def read(self, size: int) -> bytes:
        reply = await self.connection.next_reply()
        if isinstance(reply, ResponseError):
            self.connection.error_replies.append(reply)
            return b"-ERR\r\n"
        return b"$%d\r\n%b\r\n" % (len(reply), reply)


class Connection:
    """A connection with replies that the test sets; an exception among them is raised."""

    __module__ = "redis.asyncio.connection"

    def __init__(self, pool: Any = None, socket_timeout: float | None = 0.5, **_: Any) -> None:
        self.pool = pool
        self.socket_timeout = socket_timeout
        self.replies: list[Any] = []
        self.error_replies: list[ResponseError] = []
        self._parser = SimpleNamespace(parse_error=lambda text: self.error_replies.pop(0))
        self._reader: Any = None
        self._writer: Any = None

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    async def connect(self) -> None:
        if self.pool.refusal is not None:
            raise self.pool.refusal
        await asyncio.sleep(self.pool.connect_seconds)
        self._reader = self._writer = Stream(self)
        self.host, self.port = self.pool.master_address
        self.pool.connects += 1

    async def disconnect(self, nowait: bool = False) -> None:
        if self._writer is not None:
            self._writer.abort()
        self._reader = self._writer = None

    async def send_packed_command(self, data: Any, check_health: bool = True) -> None:
        assert self.socket_timeout is None, "the connection has a timeout of its own"

    async def next_reply(self) -> Any:
        """The next reply, which takes one iteration of the event loop."""
        await asyncio.sleep(0)
        if self._writer is None or self._writer.is_over:
            raise Disconnected("closed")
        reply = self.pool.replies.pop(0) if self.pool.replies else b"OK"
        if isinstance(reply, BaseException) and not isinstance(reply, ResponseError):
            raise reply
        return reply


class Pool:
    """A pool that waits, like a BlockingConnectionPool, while all of its connections are in use."""

    __module__ = "redis.asyncio.connection"

    def __init__(self, size: int = 100) -> None:
        self.max_connections = size
        self.connection_kwargs: dict[str, Any] = {"pool": self}
        self.connection_class = self.made
        self._available_connections: list[Connection] = []
        self._in_use_connections: set[Connection] = set()
        self.replies: list[Any] = []
        self.refusal: Exception | None = None
        self.master_address = ("old", 1)
        self.kind = Connection
        self.connects = 0
        self.connect_seconds = 0.001
        self.all: list[Connection] = []

    def made(self, **parameters: Any) -> Connection:
        self.all.append(self.kind(**parameters))
        return self.all[-1]

    def can_get_connection(self) -> bool:
        return len(self._in_use_connections) < self.max_connections

    async def get_connection(self) -> Connection:
        while not self.can_get_connection():
            await asyncio.sleep(1)
        idle = self._available_connections
        connection = idle.pop() if idle else self.made(pool=self)
        self._in_use_connections.add(connection)
        try:
            if not connection.is_connected:
                await connection.connect()
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Connection) -> None:
        await asyncio.sleep(0)
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)

    def reset(self) -> None:
        """Do nothing."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        used = self._in_use_connections if inuse_connections else ()
        for connection in (*self._available_connections, *used):
            await connection.disconnect()

    @property
    def open(self) -> list[Connection]:
        return [connection for connection in self.all if connection.is_connected]

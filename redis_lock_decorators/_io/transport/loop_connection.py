"""Requests over a private connection on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.loop_socket import LoopSocket
from redis_lock_decorators._io.transport.origins import Origin, is_elsewhere, origin


class LoopConnection:
    """Requests and their replies over one connection, on an event loop.

    Args:
        connection: the client library's connection, already open.
        leads_to: where the pool's connections led when it was opened.

    Attributes:
        change: done when the connection is no longer late, or is closed.
    """

    def __init__(self, connection: Any, leads_to: Origin) -> None:
        self._socket = LoopSocket(connection)
        self._origin = leads_to
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._is_retired = False
        self.change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._socket.start(self._set_reply, self._fail)

    @property
    def is_late(self) -> bool:
        """Whether a caller's wait for a reply that is still due has ended."""
        return bool(self._awaited) and self._awaited[0].done()

    def serves(self, pool: Any) -> bool:
        """Whether the connection is open, and leads where the pool's connections lead now."""
        return (
            self._socket.is_open
            and self._origin == origin(pool)
            and not is_elsewhere(self._socket.connection, pool)
        )

    async def exchange(self, data: bytes, count: int) -> list[Any]:
        """Send requests and return their replies; an error reply is an item."""
        loop = asyncio.get_running_loop()
        replies = [loop.create_future() for _ in range(count)]
        self._awaited.extend(replies)
        self._socket.send(data)
        if not self._socket.is_open:
            self._fail(client_errors.closed(self._socket.connection))
        try:
            return await asyncio.gather(*replies)
        finally:
            self._close_if_retired()

    def retire(self) -> None:
        """Close the connection when no caller waits for a reply any more."""
        self._is_retired = True
        self._close_if_retired()

    def close(self) -> None:
        """Close the connection; waiting callers get an error."""
        self._socket.close()
        self._fail(client_errors.closed(self._socket.connection))

    def _set_reply(self, value: Any) -> None:
        if not self._awaited:
            raise client_errors.closed(self._socket.connection, "a reply without a request arrived")
        reply = self._awaited.popleft()
        if not reply.done():
            reply.set_result(value)
        if not self.is_late:
            self._note_change()
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and all(reply.done() for reply in self._awaited):
            self.close()

    def _fail(self, error: Exception) -> None:
        while self._awaited:
            reply = self._awaited.popleft()
            if not reply.done():
                reply.set_exception(error)
        self._note_change()

    def _note_change(self) -> None:
        if not self.change.done():
            self.change.set_result(None)
        if self._socket.is_open:
            self.change = asyncio.get_running_loop().create_future()

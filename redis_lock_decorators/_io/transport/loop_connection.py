"""Requests over a connection of our own on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.origins import Origin, is_elsewhere, origin
from redis_lock_decorators._io.transport.sockets import LoopSocket


class LoopConnection:
    """Requests and their replies over one connection, on an event loop.

    Args:
        connection: the client library's, which opened it.
        leads_to: where the pool led when it was opened.

    Attributes:
        change: done when the connection is late no more, or is closed.
    """

    def __init__(self, connection: Any, leads_to: Origin) -> None:
        self._wire = LoopSocket(connection)
        self._origin = leads_to
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._is_retired = False
        self.change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire.start(self._tell, self._fail)

    @property
    def is_late(self) -> bool:
        """Whether a reply has not come by the time that somebody waited for it."""
        return bool(self._awaited) and self._awaited[0].done()

    def serves(self, pool: Any) -> bool:
        """Whether the connection is open, to where the pool leads now."""
        return (
            self._wire.is_open
            and self._origin == origin(pool)
            and not is_elsewhere(self._wire.connection, pool)
        )

    async def exchange(self, data: bytes, count: int) -> list[Any]:
        """Send requests and return their replies; an error reply is an item."""
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in range(count)]
        self._awaited.extend(answers)
        self._wire.send(data)
        if not self._wire.is_open:
            self._fail(client_errors.closed(self._wire.connection))
        try:
            return await asyncio.gather(*answers)
        finally:
            self._close_if_retired()

    def retire(self) -> None:
        """Close the connection when nobody waits for a reply any more."""
        self._is_retired = True
        self._close_if_retired()

    def close(self) -> None:
        """Close the connection; who waits for a reply is told."""
        self._wire.close()
        self._fail(client_errors.closed(self._wire.connection))

    def _tell(self, reply: Any) -> None:
        if not self._awaited:
            raise client_errors.closed(self._wire.connection, "a reply came that nobody awaited")
        answer = self._awaited.popleft()
        if not answer.done():
            answer.set_result(reply)
        if not self.is_late:
            self._note_change()
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and all(answer.done() for answer in self._awaited):
            self.close()

    def _fail(self, error: Exception) -> None:
        while self._awaited:
            answer = self._awaited.popleft()
            if not answer.done():
                answer.set_exception(error)
        self._note_change()

    def _note_change(self) -> None:
        if not self.change.done():
            self.change.set_result(None)
        if self._wire.is_open:
            self.change = asyncio.get_running_loop().create_future()

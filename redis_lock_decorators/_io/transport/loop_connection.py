"""Private connections of blocking clients on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.origins import Origin, is_elsewhere, origin
from redis_lock_decorators._io.transport.resp import INCOMPLETE, ProtocolError, ReplyParser
from redis_lock_decorators._io.transport.sockets import READ_SIZE, is_blocked


class LoopSocket:
    """A connection on the running event loop. No method waits for the server.

    Attributes:
        connection: the client library's connection, which opened the socket.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._sock = connection._sock
        self._sock.settimeout(0)
        self._is_tls = hasattr(self._sock, "pending")
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyParser(connection._parser.parse_error)
        self._outgoing = bytearray()
        self._on_reply: Callable[[Any], None] = lambda reply: None
        self._on_failure: Callable[[Exception], None] | None = None
        self._failure: Exception | None = None  # one that preceded start()
        self.is_open = True

    def start(
        self, on_reply: Callable[[Any], None], on_failure: Callable[[Exception], None]
    ) -> None:
        """Call ``on_reply`` with each reply or error reply, ``on_failure`` once if it breaks."""
        self._on_reply, self._on_failure = on_reply, on_failure
        if self._failure is not None:
            on_failure(self._failure)
        elif self.is_open:
            Context().run(self._loop.add_reader, self._sock, self._receive)

    def send(self, data: bytes) -> None:
        """Send bytes; those that the socket does not accept now are sent when it does."""
        if self.is_open:
            self._outgoing += data
            self._flush()

    def close(self) -> None:
        """Close the connection; neither function of ``start`` is called any more."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self.connection.disconnect()

    def _flush(self) -> None:
        try:
            del self._outgoing[: self._sock.send(self._outgoing)]
        except OSError as error:
            if not is_blocked(error):
                self._break(client_errors.closed(self.connection, f"the connection broke: {error}"))
                return
        if self._outgoing:
            self._loop.add_writer(self._sock, self._flush)
        else:
            self._loop.remove_writer(self._sock)

    def _receive(self) -> None:
        try:
            # One read, so that others have their turn; but TLS does not report buffered data.
            data = self._sock.recv(READ_SIZE)
            while data and self._is_tls and (more := self._sock.pending()):
                data += self._sock.recv(more)
        except OSError as error:
            if not is_blocked(error):
                self._break(client_errors.closed(self.connection, f"the connection broke: {error}"))
            return
        if not data:
            self._break(client_errors.closed(self.connection))
            return
        replies = self._replies
        replies.feed(data)
        try:
            while self.is_open and replies.has_rest:
                reply = replies.next_reply()
                if reply is INCOMPLETE:
                    break
                self._on_reply(reply)
        except ProtocolError as error:
            self._break(client_errors.garbled(self.connection, str(error)))
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if self.is_open:
            self.close()
            self._failure = error
            if self._on_failure is not None:
                self._on_failure(error)


class LoopConnection:
    """Requests and their replies over one connection, on an event loop.

    Args:
        connection: the client library's connection, already open.
        leads_to: where the pool's connections led when it was opened.

    Attributes:
        change: done when the connection is no longer late, or is closed.
        is_accepted: the server has replied to a request; it refuses some connections only then.
    """

    def __init__(self, connection: Any, leads_to: Origin) -> None:
        self._socket = LoopSocket(connection)
        self._origin = leads_to
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._is_retired = self.is_accepted = False
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

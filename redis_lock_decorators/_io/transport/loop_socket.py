"""A private connection of a blocking client, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis_lock_decorators._io import client_errors
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
            self._loop.add_reader(self._sock, self._receive)

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
        if data:
            self._parse(data)
        else:
            self._break(client_errors.closed(self.connection))

    def _parse(self, data: bytes) -> None:
        self._replies.feed(data)
        try:
            while self.is_open and (reply := self._replies.next_reply()) is not INCOMPLETE:
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

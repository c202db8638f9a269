"""Bytes over connections of our own: from a thread that waits, or on an event loop."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any
from weakref import finalize

from redis_lock_decorators._io import client_errors, timeouts
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.origins import Origin
from redis_lock_decorators._io.transport.resp import NOTHING, Garbled, ReplyParser

#: A wait shortened by less than this is not worth the system calls that shorten it.
SLACK = 0.25
#: The most bytes that are read at once: most replies are short, and the room for them costs time.
SIZE = 4096
#: What TLS sockets raise in place of BlockingIOError.
_TLS_BLOCKED = ("SSLWantReadError", "SSLWantWriteError")


class BlockingSocket:
    """A connection that one thread uses at a time, and waits on.

    Attributes:
        connection: the client library's, which opened it.
        origin: where the pool led when it was opened.
    """

    __slots__ = (
        "__weakref__",
        "_by_kernel",
        "_close",
        "_is_tls",
        "_patience",
        "_readable",
        "_replies",
        "_sock",
        "connection",
        "origin",
    )

    def __init__(self, connection: Any, origin: Origin | None = None) -> None:
        self.connection = connection
        self.origin = origin
        self._sock = connection._sock
        self._patience = connection.socket_timeout
        self._by_kernel = timeouts.leave_to_kernel(connection)
        if not self._by_kernel:  # it has the time-out that was left to open it
            self._sock.settimeout(self._patience)
        self._is_tls = hasattr(self._sock, "pending")
        self._readable = readable(self._sock)
        self._replies = ReplyParser(connection._parser.parse_error)
        # A wire that nobody closes is closed before its socket is collected, whatever the order.
        self._close = finalize(self, connection.disconnect)
        self._close.atexit = False

    def exchange(self, data: bytes, count: int, until: float) -> list[Any]:
        """Send requests and return their replies; an error reply is an item.

        Raises:
            TimeoutError, ConnectionError, InvalidResponse: the client library's. The connection is
                of no more use after them.
        """
        try:
            self._send(data)
            replies = [self._reply(until)]
            while len(replies) < count:
                replies.append(self._reply(until))
            return replies
        except Garbled as error:
            raise client_errors.garbled(self.connection, str(error)) from None

    def is_stale(self) -> bool:
        """Whether the server has closed the connection, or sent what nobody asked for."""
        if not self._readable(0) and not self._replies:
            return False
        return not self._is_silent_tls()

    def close(self) -> None:
        """Close the connection."""
        self._close()

    def _send(self, data: bytes) -> None:
        sent = 0
        try:
            sent = self._sock.send(data)
            if sent < len(data):
                self._sock.sendall(memoryview(data)[sent:])
        except OSError as error:
            if not client_errors.is_of_socket(error):
                raise
            failure = self._failure(error)
            # TLS may have sent a part of what it did not send.
            if not sent and not self._is_tls and isinstance(error, (BlockingIOError, TimeoutError)):
                client_errors.unsent(failure)
            raise failure from error

    def _reply(self, until: float) -> Any:
        replies = self._replies
        while (reply := replies.take()) is NOTHING:
            replies.feed(self._received(until))
        return reply

    def _received(self, until: float) -> bytes:
        left = until - monotonic()
        try:
            if left + SLACK >= self._patience:
                data: bytes = self._sock.recv(SIZE)
            else:
                data = self._recv_within(left)
        except OSError as error:
            if not client_errors.is_of_socket(error):
                raise
            data = self._arrived(error)
        if not data:
            raise client_errors.closed(self.connection)
        return data

    def _arrived(self, error: OSError) -> bytes:
        """What came though a wait for it ended with an error; that error, if nothing did.

        A wait may end late, after a signal handler that ran for longer than the wait was to last.
        """
        try:
            if isinstance(error, (BlockingIOError, TimeoutError)) and self._readable(0):
                return self._recv_within(0)
        except OSError as again:
            error = again
        raise self._failure(error) if client_errors.is_of_socket(error) else error

    def _recv(self) -> bytes:
        data: bytes = self._sock.recv(SIZE)
        return data

    def _recv_within(self, seconds: float) -> bytes:
        if self._by_kernel:
            if not self._readable(max(0.0, seconds * 1000)):
                raise BlockingIOError(0, "no reply came in time")
            return self._recv()
        self._sock.settimeout(max(0.001, seconds))
        try:
            return self._recv()
        finally:
            self._sock.settimeout(self._patience)

    def _failure(self, error: OSError) -> Exception:
        if isinstance(error, (BlockingIOError, TimeoutError)):
            return client_errors.no_reply(self.connection)
        return client_errors.closed(self.connection, f"the connection broke: {error}")

    def _is_silent_tls(self) -> bool:
        """Whether the bytes that came are TLS's own, such as the tickets after its handshake."""
        if not self._is_tls or self._replies:
            return False
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except OSError as error:
            return is_blocked(error)
        finally:
            self._sock.settimeout(self._patience)
        return False


class LoopSocket:
    """A connection on the running event loop: nothing here waits for the server.

    Attributes:
        connection: the client library's, which opened it.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._sock = connection._sock
        self._sock.settimeout(0)
        self._is_tls = hasattr(self._sock, "pending")
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyParser(connection._parser.parse_error)
        self._unsent = bytearray()
        self._tell: Callable[[Any], None] = lambda reply: None
        self._fail: Callable[[Exception], None] | None = None
        self._failure: Exception | None = None  # for who starts to hear after it
        self.is_open = True

    def start(self, tell: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        """Tell each reply from now on, also an error reply; and once why there are no more."""
        self._tell, self._fail = tell, fail
        if self._failure is not None:
            fail(self._failure)
        elif self.is_open:
            self._loop.add_reader(self._sock, self._receive)

    def send(self, data: bytes) -> None:
        """Send bytes, those that the way there does not take now a moment later."""
        if self.is_open:
            self._unsent += data
            self._flush()

    def close(self) -> None:
        """Close the connection; nothing is told any more."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self.connection.disconnect()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._sock.send(self._unsent)]
        except OSError as error:
            if not is_blocked(error):
                self._break(client_errors.closed(self.connection, f"the connection broke: {error}"))
                return
        if self._unsent:
            self._loop.add_writer(self._sock, self._flush)
        else:
            self._loop.remove_writer(self._sock)

    def _receive(self) -> None:
        try:
            # Once, for others want to be served too; but nothing says that TLS has more.
            data = self._sock.recv(SIZE)
            while data and self._is_tls and (more := self._sock.pending()):
                data += self._sock.recv(more)
        except OSError as error:
            if not is_blocked(error):
                self._break(client_errors.closed(self.connection, f"the connection broke: {error}"))
            return
        if data:
            self._hear(data)
        else:
            self._break(client_errors.closed(self.connection))

    def _hear(self, data: bytes) -> None:
        self._replies.feed(data)
        try:
            while self.is_open and (reply := self._replies.take()) is not NOTHING:
                self._tell(reply)
        except Garbled as error:
            self._break(client_errors.garbled(self.connection, str(error)))
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if self.is_open:
            self.close()
            self._failure = error
            if self._fail is not None:
                self._fail(error)


def is_blocked(error: OSError) -> bool:
    """Whether a socket that does not wait would have to."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in _TLS_BLOCKED


def readable(sock: Any) -> Callable[[float], object]:
    """A look for something to read, of so many milliseconds at most."""
    if not hasattr(select, "poll"):  # Windows, and where eventlet took it away
        return lambda milliseconds: select.select([sock], [], [], milliseconds / 1000)[0]
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return poller.poll

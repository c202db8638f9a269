"""A private connection of a blocking client, for one thread at a time."""

from __future__ import annotations

import math
import os
import select
import socket
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec, module_from_spec
from types import BuiltinFunctionType
from typing import Any
from weakref import finalize

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io import client_errors, timeouts
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport import inherited
from redis_lock_decorators._io.transport.origins import Origin
from redis_lock_decorators._io.transport.resp import INCOMPLETE, ProtocolError, ReplyParser

#: Seconds; a timeout that is shorter by less is not worth the system calls that set it.
SLACK = 0.25
#: The same on all systems that have poll(); eventlet removes it from ``select``.
POLLIN = 1
#: The most bytes in one read. Most replies are short, and a larger buffer costs time.
READ_SIZE = 4096
ONE_READ = (READ_SIZE,)
#: What TLS sockets raise instead of BlockingIOError.
_TLS_BLOCKED = ("SSLWantReadError", "SSLWantWriteError")

#: The thread on which signal handlers run: after each, the kernel's time-outs begin anew, so that a
#: periodic timer would make a wait endless. Written by a forked child, which has one thread.
_main_thread = threading.main_thread().ident


class BlockingSocket:
    """A connection that one thread uses at a time.

    Attributes:
        connection: the client library's connection, which opened the socket.
        in_time_until: until when no reply is late, in monotonic seconds.
        origin: where the pool's connections led when it was opened.
    """

    __slots__ = (
        "__weakref__",
        "_by_kernel",
        "_close",
        "_is_tls",
        "_patience",
        "_readable",
        "_reads",
        "_replies",
        "_send_flags",
        "_sock",
        "connection",
        "in_time_until",
        "origin",
    )

    def __init__(self, connection: Any, origin: Origin | None = None) -> None:
        self.connection = connection
        self.origin = origin
        self.in_time_until = -math.inf
        self._sock = connection._sock
        self._patience = connection.socket_timeout
        self._by_kernel = timeouts.leave_to_kernel(connection)
        if not self._by_kernel:  # its timeout is still what remained for opening it
            self._sock.settimeout(self._patience)
        self._is_tls = hasattr(self._sock, "pending")
        self._send_flags: int = getattr(socket, "MSG_DONTWAIT", 0) if self._by_kernel else 0
        self._readable = readable(self._sock)
        self._replies = ReplyParser(connection._parser.parse_error)
        self._reads: list[bytes] = []  # the results of the reads of an exchange
        # Close an abandoned connection before its socket is collected, whatever the order.
        self._close = finalize(self, connection.disconnect)
        self._close.atexit = False
        inherited.add(self)

    def exchange(
        self, data: bytes, count: int, until: float, sending: Sending | None = None
    ) -> list[Any]:
        """Send requests and return their replies; an error reply is an item.

        ``sending`` is called before the first byte is sent, and gets what reads the replies if an
        exception from outside interrupts that; then the connection must not be closed.

        Raises:
            TimeoutError, ConnectionError, InvalidResponse: the client library's. The connection
                must not be used after them.
        """
        replies: list[Any] = []
        self._reads.clear()
        if sending is not None:
            sending.late = partial(self._late, replies, count)
            sending()
        try:
            sent = self._sock.send(data, self._send_flags)
        except OSError as error:
            if not client_errors.is_of_socket(error):
                raise
            if not self._send_flags or not isinstance(error, BlockingIOError):
                raise self._send_failure(error, 0) from error
            sent = 0
        if sent < len(data):
            self._send_rest(data, sent)
        return self._read(replies, count, until)

    def _read(self, replies: list[Any], count: int, until: float) -> list[Any]:
        """Append replies until there are so many, and return them."""
        parser = self._replies
        try:
            if count == 1 and not parser.has_rest:
                reply = parser.only_string(self._received(until))
                if reply is not INCOMPLETE:
                    replies.append(reply)
                    return replies
            while len(replies) < count:
                if parser.has_rest and (reply := parser.next_reply()) is not INCOMPLETE:
                    replies.append(reply)
                else:
                    parser.feed(self._received(until))
            return replies
        except ProtocolError as error:
            raise client_errors.garbled(self.connection, str(error)) from None

    def _late(self, replies: list[Any], count: int, until: float) -> list[Any]:
        """Complete the replies to an interrupted exchange, then close the connection."""
        if len(replies) == count:  # another exchange may use the connection
            return replies
        try:
            if self._reads and self._replies.fed is not self._reads[-1]:
                self._replies.feed(self._reads[-1])
            return self._read(replies, count, until)
        finally:
            self.close()

    def is_stale(self) -> bool:
        """Whether the server has closed the connection, or sent a reply without a request."""
        if not self._readable(0) and not self._replies.has_rest:
            return False
        return not self._has_only_tls_records()

    def close(self) -> None:
        self._close()

    def fileno(self) -> int:
        found: int = self._sock.fileno()
        return found

    def _send_rest(self, data: bytes, sent: int) -> None:
        """Send what the socket did not accept immediately.

        Not with the kernel's time-out, which begins anew after each signal handler.
        """
        sock = self._sock
        if self._by_kernel:
            sock.settimeout(self._patience)
        try:
            if not sent:
                sent = sock.send(data)
            if sent < len(data):
                sock.sendall(memoryview(data)[sent:])
        except OSError as error:
            if not client_errors.is_of_socket(error):
                raise
            raise self._send_failure(error, sent) from error
        finally:
            if self._by_kernel:
                sock.settimeout(None)

    def _send_failure(self, error: OSError, sent: int) -> Exception:
        """The client library's error for a send that failed after so many bytes."""
        failure = self._failure(error)
        # With TLS a part of the data may have been sent.
        if not sent and not self._is_tls and isinstance(error, (BlockingIOError, TimeoutError)):
            client_errors.mark_unsent(failure)
        return failure

    def _received(self, until: float) -> bytes:
        left = max(until, self.in_time_until) - monotonic()
        try:
            if left + SLACK >= self._patience and not (
                self._by_kernel and threading.get_ident() == _main_thread
            ):
                # In C, so that no signal handler runs before the bytes are stored.
                self._reads.extend(map(self._sock.recv, ONE_READ))
            else:
                self._recv_within(min(left, self._patience))
        except OSError as error:
            if not client_errors.is_of_socket(error):
                raise
            self._recv_despite(error)
        data = self._reads[-1]
        if not data:
            raise client_errors.closed(self.connection)
        return data

    def _recv_despite(self, error: OSError) -> None:
        """Read what has arrived by the time that a read fails; raise its error if nothing has.

        A read may fail late, after a signal handler that ran for longer than the timeout.
        """
        try:
            if isinstance(error, (BlockingIOError, TimeoutError)) and self._readable(0):
                return self._recv_within(0)
        except OSError as again:
            error = again
        raise self._failure(error) if client_errors.is_of_socket(error) else error

    def _recv_within(self, seconds: float) -> None:
        if self._by_kernel:
            if not self._readable(max(0.0, seconds * 1000)):
                raise BlockingIOError(0, "no reply arrived in time")
            self._reads.extend(map(self._sock.recv, ONE_READ))
            return
        self._sock.settimeout(max(0.001, seconds))
        try:
            self._reads.extend(map(self._sock.recv, ONE_READ))
        finally:
            self._sock.settimeout(self._patience)

    def _failure(self, error: OSError) -> Exception:
        if isinstance(error, (BlockingIOError, TimeoutError)):
            return client_errors.no_reply(self.connection)
        return client_errors.closed(self.connection, f"the connection broke: {error}")

    def _has_only_tls_records(self) -> bool:
        """Whether the input is only of TLS itself, such as session tickets after the handshake."""
        if not self._is_tls or self._replies.has_rest:
            return False
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except OSError as error:
            return is_blocked(error)
        finally:
            self._sock.settimeout(self._patience)
        return False


def _note_main_thread() -> None:
    global _main_thread
    _main_thread = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_main_thread)


def is_blocked(error: OSError) -> bool:
    """Whether a non-blocking socket would have to wait."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in _TLS_BLOCKED


def readable(sock: Any) -> Callable[[float], object]:
    """A function that waits for input for so many milliseconds at most; true if there is some."""
    poll = _native_poll()
    if poll is None:  # Windows
        return lambda milliseconds: select.select([sock], [], [], milliseconds / 1000)[0]
    poller = poll()
    poller.register(sock, POLLIN)
    return poller.poll  # type: ignore[no-any-return]


@cache
def _native_poll() -> Callable[[], Any] | None:
    """``poll`` of the module ``select``, or of a private copy if a library has replaced it.

    gevent's sets a timer even if it does not wait. If a signal handler interrupts that, the timer
    raises its exception in the program later.
    """
    found: Callable[[], Any] | None = getattr(select, "poll", None)
    if isinstance(found, BuiltinFunctionType):
        return found
    spec = find_spec("select")
    if spec is None or spec.loader is None:
        return found
    native = module_from_spec(spec)
    spec.loader.exec_module(native)
    return getattr(native, "poll", None)

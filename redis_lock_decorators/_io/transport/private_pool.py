"""Private connections to a blocking client's server.

They are separate from the client's pool for three reasons: a lock can be released while the work
uses all of the pool's connections; a request ends when its caller's time ends, whatever timeouts
and retries the client has; and a connection is closed if its exchange was interrupted, so that the
late reply is never read as that of another command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport import inherited, private_connection
from redis_lock_decorators._io.transport.batch import starts_acquisition
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.origins import IdleFollower, is_elsewhere, origin
from redis_lock_decorators._io.transport.sockets import BlockingSocket

#: The most idle connections. More than these are open only while that many requests are under way.
MAX_IDLE = 16


class PrivatePool(IdleFollower):
    """Connections made like those of a client's pool, each used by one request at a time.

    They are closed with the client. A release after that opens one only for itself; the next
    acquisition keeps one again.
    """

    __slots__ = ("_idle", "_process")

    def __init__(self) -> None:
        super().__init__()
        self._process = fork.process_id
        self._idle: list[BlockingSocket] = []  #: any thread: append and pop are atomic

    def exchange(
        self, pool: Any, command: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> Any:
        """Send a command and return its reply; raise the client's TimeoutError at ``until``.

        ``sending`` is called before its first byte is sent.
        """
        if self._closed is self._followed and starts_acquisition(command):
            self.reopen()
        replies = self._send_batch(pool, packed(command), 1, until, sending)
        if isinstance(replies[0], Exception):
            raise replies.pop()
        return replies[0]

    def exchange_all(
        self,
        pool: Any,
        commands: Sequence[tuple[Any, ...]],
        until: float,
        sending: Sending | None = None,
    ) -> list[Any]:
        """The same for several commands, sent together; an error reply is an item."""
        if self._closed is self._followed and any(map(starts_acquisition, commands)):
            self.reopen()
        data = b"".join(map(packed, commands))
        return self._send_batch(pool, data, len(commands), until, sending)

    def _send_batch(
        self, pool: Any, data: bytes, count: int, until: float, sending: Sending | None
    ) -> list[Any]:
        idle = self._usable(pool)  # like ``take``, in the same call
        socket = self._opened(pool, until) if idle is None else idle
        try:
            replies = socket.exchange(data, count, until, sending)
        except BaseException as error:
            if sending is None or sending.late is None or client_errors.is_outcome(error):
                socket.close()
                if idle is not None:  # else the others, which have worked before, may be in order
                    self.drop()
            raise
        for reply in replies:
            if isinstance(reply, Exception) and not client_errors.keeps_connection(reply):
                socket.close()
                self.drop()
                return replies
        if len(self._idle) < MAX_IDLE:  # like ``keep``, in the same call
            self._idle.append(socket)
            if self._closed is self._followed:
                self.drop()
        else:
            socket.close()
        return replies

    def exchange_idle(self, pool: Any, data: bytes, count: int, until: float) -> list[Any] | None:
        """Send commands over an idle connection and return their replies; None if there is none.

        An error reply is an item.
        """
        socket = self._usable(pool)
        if socket is None:
            return None
        try:
            replies = socket.exchange(data, count, until)
        except BaseException:
            socket.close()
            self.drop()
            raise
        if all(map(client_errors.keeps_connection, replies)):
            self.keep(socket)
        else:
            socket.close()
            self.drop()
        return replies

    @property
    def has_idle(self) -> bool:
        """Whether a connection is idle at this moment."""
        return bool(self._idle)

    def take(self, pool: Any, until: float) -> BlockingSocket:
        """Remove and return an idle connection, or open one."""
        return self._usable(pool) or self._opened(pool, until)

    def keep(self, socket: BlockingSocket) -> None:
        """Keep a connection for other requests."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(socket)
            if self._closed is self._followed:  # perhaps by another thread during the exchange
                self.drop()
        else:
            socket.close()

    def drop(self) -> None:
        """Close the idle connections."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:  # also if another thread took the last one
                return

    def _usable(self, pool: Any) -> BlockingSocket | None:
        """An idle connection that is in order, and leads where the client's pool does now.

        It is checked first: the outcome of a request sent over a stale connection is unknown.
        """
        while True:
            try:
                socket = self._idle.pop()
            except IndexError:  # also if another thread took the last one
                return None
            if (
                not socket.is_stale()
                and socket.origin == origin(pool)
                and (
                    getattr(pool, "master_address", None) is None  # it is not Sentinel's
                    or not is_elsewhere(socket.connection, pool)
                )
            ):
                return socket
            socket.close()

    def _opened(self, pool: Any, until: float) -> BlockingSocket:
        """A new connection, over which requests may take as long as it took to open.

        If its time is over by then, the connection is kept for the next request instead: the
        library limits each step of opening, not all together, and a request that is sent after its
        time could acquire a lock for nobody.

        Raises:
            LockError: the caller is a copy, in a forked child: a signal handler has forked.
        """
        self.follow(pool)  # before: the client may be closed while the connection is opened
        began = monotonic()
        inherited.refuse_copy(self._process)
        socket = connected(pool, until)
        inherited.refuse_copy(self._process)  # it may have been forked meanwhile
        now = monotonic()
        if now < until:
            socket.in_time_until = now + (now - began)
            return socket
        self.keep(socket)
        raise client_errors.mark_unsent(client_errors.no_reply(pool))


class ThreadExclusive:
    """A private connection for the exchanges of one transaction."""

    __slots__ = ("_connections", "_pool", "_socket", "_until")

    def __init__(self, connections: PrivatePool, pool: Any, until: float) -> None:
        self._connections = connections
        self._pool = pool
        self._until = until
        self._socket: BlockingSocket | None = None

    async def exchange(
        self, commands: Sequence[tuple[Any, ...]], sending: Sending | None = None
    ) -> list[Any]:
        if self._socket is None:
            self._socket = self._connections.take(self._pool, self._until)
        data = b"".join(map(packed, commands))
        return self._socket.exchange(data, len(commands), self._until, sending)

    def end(self, is_kept: bool) -> None:
        if self._socket is not None and is_kept:
            self._connections.keep(self._socket)
        elif self._socket is not None:
            self._socket.close()
            self._connections.drop()


def connected(pool: Any, until: float) -> BlockingSocket:
    """A new connection like those of a pool, opened by ``until``."""
    leads_to = origin(pool)  # before it is opened: the pool may lead elsewhere by the time it is
    opened = private_connection.opened(pool.connection_class, pool.connection_kwargs, until)
    return BlockingSocket(opened, leads_to)

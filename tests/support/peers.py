"""Connections whose other end is a test instead of a server."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators._io.transport.private_pool import PrivatePool


class Peers:
    """A pool whose connections lead to the test.

    Attributes:
        ends: the other ends of the connections, in the order they were opened.
        script: what is replied to the requests on the next connections, in turn; after an empty
            reply the connection is closed.
        error: raised in place of the next connections.
    """

    def __init__(self, *script: bytes, **parameters: Any) -> None:
        self.connection_kwargs = parameters
        self.ends: list[socket.socket] = []
        self.script = list(script)
        self.error: BaseException | None = None
        self._ours: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def connection_class(self, **parameters: Any) -> Connection:
        return Connection(self, **parameters)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Called by a client when it is closed."""

    def reset(self) -> None:
        """Called by some programs to reconnect."""

    def opened(self) -> socket.socket:
        """The package's end of a new connection."""
        if self.error is not None:
            raise self.error
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        self._ours.append(ours)
        if self.script:
            script, self.script = self.script, []
            self._threads.append(threading.Thread(target=_play, args=(theirs, script)))
            self._threads[-1].start()
        return ours

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in (*self.ends, *self._ours):
            one.close()


#: Changes of a program after which a client's pool connects elsewhere.
MOVES: list[Callable[[Peers], object]] = [
    lambda pool: pool.disconnect(),
    lambda pool: pool.disconnect(inuse_connections=False),
    lambda pool: pool.reset(),
    lambda pool: pool.connection_kwargs.update(host="new"),
    lambda pool: pool.connection_kwargs.update(port=1),
    lambda pool: pool.connection_kwargs.update(db=1),
    lambda pool: pool.connection_kwargs.update(path="/new"),
]


def name_of_move(move: Callable[[Peers], object]) -> str:
    """The name of a change, for the id of a test."""
    names = [*move.__code__.co_names, *move.__code__.co_consts]
    return "-".join(name for name in map(str, names) if name.isidentifier() and name != "None")


class Connection:
    """The part of a client library's connection that the package uses."""

    def __init__(
        self, pool: Peers, socket_timeout: float | None = None, host: str = "one", **others: Any
    ) -> None:
        self.host, self.port = host, 6379
        self.others = others
        self.socket_timeout = socket_timeout
        self._pool = pool
        self._parser = redis.Connection()._parser
        self._sock: socket.socket | None = None

    def connect(self) -> None:
        self._sock = self._pool.opened()
        self._sock.settimeout(self.socket_timeout)

    def disconnect(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def _play(end: socket.socket, script: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        for reply in script:
            if not end.recv(65536):
                return
            if not reply:
                end.shutdown(socket.SHUT_RDWR)
                return
            end.sendall(reply)


def ask(private_pool: PrivatePool, pool: Peers, seconds: float = 60) -> Any:
    """Send a request that starts an acquisition; returns its reply."""
    return private_pool.exchange(pool, ("SET", "lock", "1"), time.monotonic() + seconds)

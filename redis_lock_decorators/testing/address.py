"""An address whose server can change, like a DNS name, a virtual IP or a proxy."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.ports import HOST
from redis_lock_decorators.testing.servers import LocalServer

CONNECT_SECONDS = 5.0
CHUNK = 65_536


class LocalAddress:
    """A TCP proxy on 127.0.0.1 in front of `server`, as a context manager.

    `point_to()` changes the server for new connections; open ones remain connected
    to the old server until `cut()`.
    """

    def __init__(self, server: Node | LocalServer) -> None:
        self._server = server
        self._listener = socket.create_server((HOST, 0))
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._guard = threading.Lock()
        self._is_open = True
        self._port: int = self._listener.getsockname()[1]

    @property
    def host(self) -> str:
        """The address to connect to."""
        return HOST

    @property
    def port(self) -> int:
        """The port, which stays the same."""
        return self._port

    @property
    def url(self) -> str:
        """The URL of this address, database 0."""
        return f"redis://{HOST}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        """Return a new `redis.Redis` for this address with these options."""
        return redis.Redis(HOST, self.port, **options)

    def point_to(self, server: Node | LocalServer) -> None:
        """Connect new connections to another server."""
        self._server = server

    def cut(self) -> None:
        """Close all open connections."""
        with self._guard:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _shut(pair)

    def __enter__(self) -> "LocalAddress":
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        # shutdown() wakes the thread that accepts; close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while self._is_open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._join(client)

    def _join(self, client: socket.socket) -> None:
        try:
            address = (self._server.host, self._server.port)
            server = socket.create_connection(address, CONNECT_SECONDS)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = (client, server)
        with self._guard:
            self._pairs.add(pair)
        self._spawn(self._forward, pair)

    def _forward(self, pair: tuple[socket.socket, socket.socket]) -> None:
        """Forward data in both directions until one side closes its connection."""
        client, server = pair
        with contextlib.suppress(OSError), selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, (client, server))
            selector.register(server, selectors.EVENT_READ, (server, client))
            while all(_forward_once(*key.data) for key, _ in selector.select()):
                pass
        with self._guard:
            self._pairs.discard(pair)
        _shut(pair)
        for one in pair:
            one.close()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        name = f"address {self.port}"
        threading.Thread(target=target, args=arguments, name=name, daemon=True).start()


def _forward_once(source: socket.socket, target: socket.socket) -> bool:
    data = source.recv(CHUNK)
    if data:
        target.sendall(data)
    return bool(data)


def _shut(pair: tuple[socket.socket, socket.socket]) -> None:
    for one in pair:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

"""The ports of an event loop to blocking clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import ref

from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.background_client import (
    ConnectionTransport,
    ThreadTransport,
)
from redis_lock_decorators._io.transport.batch import Transport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.subscriptions import thread_subscription

#: Seconds for which a port that nobody asks for is kept, with its connection.
UNUSED = 60.0
#: Seconds between two looks for those, and for ports to clients that are gone.
LOOK = 5.0

#: Calls a function after so many seconds.
Later = Callable[[float, Callable[[], object]], object]


def call_later(seconds: float, function: Callable[[], object]) -> object:
    """Have the running event loop call a function, in no context of a user."""
    return asyncio.get_running_loop().call_later(seconds, function, context=Context())


class Direct(RequestBatcher):
    """Where a connection takes requests while others are under way, none waits for another."""

    async def exchange(
        self, transport: Transport, command: tuple[Any, ...], until: float, first: bool = False
    ) -> Any:
        (reply,) = await transport.send_batch([command], until)
        if isinstance(reply, Exception):
            raise reply
        return reply


class BackgroundPort(AsyncioPort):
    """The port to a blocking client, which it does not keep alive: who uses it here does."""

    __slots__ = ("_client",)

    def follow(self, client: Any) -> None:
        """Use the pool that the client has now: a program may give it another."""
        if isinstance(self._transport, ConnectionTransport):
            self._transport.pool = client.connection_pool

    @property
    def client(self) -> Any:
        return self._client()

    @client.setter
    def client(self, client: Any) -> None:
        self._client: Callable[[], Any]
        try:
            self._client = ref(client)
        except TypeError:  # of a kind that cannot be referred to so
            self._client = lambda: client


class BackgroundPorts:
    """A port to each client that is in use: each has a connection until nobody has asked for long.

    Args:
        later: calls a function after so many seconds, on the running event loop.
    """

    def __init__(self, later: Later = call_later) -> None:
        self._ports: dict[int, tuple[BackgroundPort, float]] = {}
        self._later = later
        self._is_watched = False

    def beside(self, port: Any) -> BackgroundPort:
        """The port on the running event loop to the client of a blocking port."""
        number = id(port.client)
        found = self._ports[number][0] if number in self._ports else beside(port)
        if found.client is not port.client:  # one that is gone had the same place in memory
            found.close()
            found = beside(port)
        found.follow(port.client)
        self._ports[number] = found, monotonic()
        self._watch()
        return found

    def close(self) -> None:
        """Close all of them."""
        while self._ports:
            self._ports.popitem()[1][0].close()

    def _watch(self) -> None:
        """Look in a while for those that nobody needs any more."""
        if not self._is_watched and self._ports:
            self._is_watched = True
            self._later(LOOK, self._look)

    def _look(self) -> None:
        self._is_watched = False
        now = monotonic()
        for number, (port, used) in list(self._ports.items()):
            if port.client is None or used < now - UNUSED:
                del self._ports[number]
                port.close()
        self._watch()


def beside(port: BlockingPort) -> BackgroundPort:
    """A port on the running event loop to the client of a blocking port."""
    client = port.client
    client_state = ClientState(
        client, RequestBatcher() if port.may_resend else Direct(), port.lease_loop
    )
    client_state.serials = port.serials
    transport: Transport
    transport = (
        ThreadTransport(client, client_state)
        if port.may_resend
        else ConnectionTransport(client.connection_pool)
    )
    return BackgroundPort(client, client_state, transport, thread_subscription)

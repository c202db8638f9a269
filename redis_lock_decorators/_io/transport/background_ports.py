"""The ports of an event loop to blocking clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.background_client import ThreadTransport
from redis_lock_decorators._io.transport.background_connection import ConnectionTransport
from redis_lock_decorators._io.transport.batch import Transport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.subscriptions import thread_subscription
from redis_lock_decorators._io.weak_references import weak

#: Seconds after its last use when a port is closed, with its connection.
UNUSED = 60.0
#: Seconds between two checks for those, and for ports to clients that were garbage-collected.
CHECK_INTERVAL = 5.0

#: Calls a function after so many seconds.
Later = Callable[[float, Callable[[], object]], object]


def call_later(seconds: float, function: Callable[[], object]) -> object:
    """Call a function later on the running event loop, in an empty context."""
    return asyncio.get_running_loop().call_later(seconds, function, context=Context())


class DirectSender(RequestBatcher):
    """Sends each request immediately: the connection accepts them while others are under way."""

    async def exchange(
        self,
        transport: Transport,
        command: tuple[Any, ...],
        until: float,
        first: bool = False,
        sending: Sending | None = None,
    ) -> Any:
        if sending is not None:
            sending()
        replies = await transport.send_batch([command], until)
        if isinstance(replies[0], Exception):
            raise replies.pop()
        return replies[0]


class BackgroundPort(AsyncioPort):
    """A port to a blocking client, to which it refers weakly: its users keep the client alive."""

    __slots__ = ("_client",)

    def follow(self, client: Any) -> None:
        """Use the pool that the client has now: a program may replace it."""
        if isinstance(self._transport, ConnectionTransport):
            self._transport.pool = client.connection_pool

    @property
    def client(self) -> Any:
        return self._client()

    @client.setter
    def client(self, client: Any) -> None:
        self._client = weak(client)


class BackgroundPorts:
    """A port to each client in use; it has a connection until it was unused for long.

    Args:
        later: calls a function after so many seconds, on the running event loop.
    """

    def __init__(self, later: Later = call_later) -> None:
        self._ports: dict[int, tuple[BackgroundPort, float]] = {}
        self._later = later
        self._is_scheduled = False

    def port_for(self, port: Any) -> BackgroundPort:
        """The port on the running event loop to the client of a blocking port."""
        number = id(port.client)
        port.check_pool()
        found = self._ports[number][0] if number in self._ports else new_port(port)
        # A former client had the same address in memory, or it had a pool that could be bypassed.
        if found.client is not port.client or found.may_resend is not port.may_resend:
            found.close()
            found = new_port(port)
        found.follow(port.client)
        self._ports[number] = found, monotonic()
        self._schedule_check()
        return found

    def close(self) -> None:
        while self._ports:
            self._ports.popitem()[1][0].close()

    def _schedule_check(self) -> None:
        """Schedule a check for ports that are no longer needed."""
        if not self._is_scheduled and self._ports:
            self._is_scheduled = True
            self._later(CHECK_INTERVAL, self._check)

    def _check(self) -> None:
        self._is_scheduled = False
        now = monotonic()
        for number, (port, used) in list(self._ports.items()):
            if port.client is None or used < now - UNUSED:
                del self._ports[number]
                port.close()
        self._schedule_check()


def new_port(port: BlockingPort) -> BackgroundPort:
    """A port on the running event loop to the client of a blocking port."""
    client = port.client
    client_state = ClientState(
        client, RequestBatcher() if port.may_resend else DirectSender(), port.lease_loop
    )
    client_state.serials, client_state.rights = port.serials, port.rights
    if not port.may_resend:
        plain = ConnectionTransport(client.connection_pool, port._private_pool)
        return BackgroundPort(client, client_state, plain, thread_subscription)
    # Each waits for its own calls only: a recheck must not delay renewals.
    rest, renewals = (ThreadTransport(client, client_state) for _ in range(2))
    return BackgroundPort(client, client_state, rest, thread_subscription, renewals)

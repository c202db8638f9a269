"""The port of asyncio code: flows are awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from redis_lock_decorators._flow.background import Subscription
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import LateReply, Sending, Watched
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.closing import is_being_closed
from redis_lock_decorators._io.background.finishing import finish
from redis_lock_decorators._io.background.starting import gather, start_on
from redis_lock_decorators._io.background.timers import sleep
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.base_port import BasePort
from redis_lock_decorators._io.blocking_port import claims_below
from redis_lock_decorators._io.client_methods import refuse_without_pipelines
from redis_lock_decorators._io.client_nodes import first_key, node_of
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._io.transport.asyncio_client import (
    ClientTransport,
    send_separately,
    with_redirected,
)
from redis_lock_decorators._io.transport.asyncio_pool import PoolTransport
from redis_lock_decorators._io.transport.batch import Redirection, Transport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.late_replies import arrived
from redis_lock_decorators._io.transport.subscriptions import find_nodes, task_subscription
from redis_lock_decorators._io.transport.task_exclusive import TaskExclusive
from redis_lock_decorators._io.transport.watch import Watch
from redis_lock_decorators._io.transport.watch_pipeline import TaskWatch

T = TypeVar("T")

#: The keys of the batchers for urgent requests, for those of subscribers, and for renewals, if they
#: must not wait for others; the keys of other batchers are nodes.
URGENT, SUBSCRIBER, RENEWALS = object(), object(), object()


class AsyncioPort(BasePort):
    """An asyncio client as the flows see it, on the running event loop.

    Attributes:
        loop: its event loop. The garbage collector may close coroutines of it on another thread.
    """

    __slots__ = (
        "__weakref__",
        "_batcher",
        "_new_subscription",
        "_renewal_transport",
        "_transport",
        "loop",
    )

    cancellable = True

    def __init__(
        self,
        client: Any,
        client_state: ClientState[RequestBatcher],
        transport: Transport,
        new_subscription: Callable[[Any, bytes], Awaitable[Subscription]] = task_subscription,
        renewal_transport: Transport | None = None,
    ) -> None:
        self.client = client
        self.lease_loop = client_state.lease_loop
        self.renewer = client_state.lease_loop.renewer
        self._client_state = client_state
        self.held = client_state.held
        self.arrivals = client_state.arrivals
        self.serials = client_state.serials
        self.rights = client_state.rights
        self.slotted = client_state.slotted
        self.transacts = client_state.transacts
        self.may_resend = transport.may_resend
        self._batcher = client_state.sender
        self.loop = self._batcher.loop
        self._transport = transport
        self._new_subscription = new_subscription
        self._renewal_transport = renewal_transport or transport

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    def send(self, *command: Any, until: float, sending: Sending | None = None) -> Awaitable[Any]:
        batcher = self._route(command) if self.slotted else self._batcher
        return batcher.request(self._transport, command, until, sending)

    def send_urgent(
        self, *command: Any, until: float, sending: Sending | None = None
    ) -> Awaitable[Any]:
        batcher, transport = self._route(command), self._transport
        if batcher.is_busy:
            batcher = batcher.separate(URGENT)
            if isinstance(transport, PoolTransport):
                transport = pool_transport(batcher, self.client)
                transport.port = ref(self)
        return batcher.exchange(transport, command, until, sending=sending)

    def send_renewal(self, *command: Any, until: float) -> Awaitable[Any]:
        if not self.may_resend:
            return self.send(*command, until=until)
        batcher = self._route(command).separate(RENEWALS)
        return batcher.exchange(self._renewal_transport, command, until, first=True)

    def _route(self, command: tuple[Any, ...]) -> RequestBatcher:
        batcher = self._batcher
        return batcher.separate(node_of(self.client, command)) if self.slotted else batcher

    def withdraw(
        self, identifier: str, error: BaseException, sending: Sending | None = None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) or self.is_outcome(error):
            return  # a cancellation has cancelled the future of its reply
        if is_running_here(self.loop):
            for batcher in self._batcher.all():
                batcher.withdraw(identifier, sending)
        else:
            call_on(self.loop, self.withdraw, identifier, error, sending)

    def late_reply(self, sending: Sending) -> LateReply | None:
        for batcher in self._batcher.all():
            reply = batcher.late_reply(sending)
            if reply is not None:
                return partial(arrived, reply, self._transport)
        return None

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        self._batcher.refuse_copy()
        if isinstance(self._transport, PoolTransport):
            idle = self._batcher.idle
            try:
                return await send_separately(self.client, idle, commands, until, sending)
            except client_errors.PoolReplaced:
                self.use_methods()
                raise
        refuse_without_pipelines(self.client)
        await self.locate(first_key(commands[0]), until)
        node = self._client_state.node(self.client, commands[0])
        transport = ClientTransport(self.client)
        if sending is not None:
            sending()
        replies = await transport.send_batch(commands, until)
        first = replies[0]
        # Not followed: the former node may have answered the other commands before that one runs.
        if isinstance(first, Redirection):
            raise client_errors.moved(self.client, asks=first.asks)
        replies = await with_redirected(replies, commands, until)
        if self._client_state.node(self.client, commands[0]) != node:
            raise client_errors.moved(self.client)
        return replies

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        return await gather(works)

    async def locate(self, key: bytes, until: float) -> None:
        if self.slotted and self._client_state.node(self.client, ("", key)) is None:
            await find_nodes(self.client, until)

    def wakeup(self) -> TaskWakeup:
        return TaskWakeup()

    def interrupted(self) -> list[Claim]:
        # A flow in a task never interrupts another flow of that task. But this event loop may run
        # in a signal handler that interrupts a flow of its thread.
        return claims_below(0)

    def would_stop_tasks(self) -> bool:
        return False

    async def subscription(self, key: bytes) -> Subscription:
        return await self._new_subscription(self.client, key)

    async def drop_idle_connections(self) -> None:
        # Of all batchers: urgent requests use a separate connection.
        for transport in {self._transport, *self._batcher.transports()}:
            await transport.drop_idle_connections()

    async def shield(
        self, work: Callable[[], Awaitable[object]], longest: float = math.inf
    ) -> None:
        if is_being_closed() or not is_running_here(self.loop):
            # Its event loop may be closed, and its connections gone: then the keys expire.
            start_on(self.loop, partial(finish, work))
        else:
            await finish(work, longest)

    def ahead(self) -> AsyncioPort:
        """The port for requests that go before others: of the renewer and the subscriber."""
        return _PortAhead(self.client, self._client_state, self._transport, self._new_subscription)

    def close(self) -> None:
        """Close the connections of this port's transport."""
        self._transport.close()

    def watch(self, until: float) -> Watched:
        client, state = self.client, self._client_state
        self._check_pool()
        if not isinstance(self._transport, PoolTransport):
            return TaskWatch(client, state, until)
        connection = TaskExclusive(self._batcher.idle, client.connection_pool, until)
        return Watch(connection)

    def use_methods(self) -> None:
        """Use the client's own methods from now on, for the claims of this port and later ones."""
        self._client_state.use_methods(self.client)
        self.may_resend, self.transacts = True, self._client_state.transacts
        self._transport = self._renewal_transport = ClientTransport(self.client)

    def _check_pool(self) -> None:
        """Use the client's methods from now on if its pool was replaced by the program's own."""
        is_bypassed = isinstance(self._transport, PoolTransport)
        if is_bypassed and not self._batcher.idle.is_fit(self.client.connection_pool):
            self.use_methods()


class _PortAhead(AsyncioPort):
    """A port whose requests are first in the next batch."""

    __slots__ = ()

    def send(self, *command: Any, until: float, sending: Sending | None = None) -> Awaitable[Any]:
        batcher = self._route(command)
        if self.may_resend:
            # An exchange by the client's own methods cannot be ended, and may take seconds.
            batcher = batcher.separate(SUBSCRIBER)
        return batcher.exchange(self._transport, command, until, first=True, sending=sending)


def port_of(client: Any, client_state: ClientState[RequestBatcher]) -> AsyncioPort:
    """The port to an asyncio client; it bypasses the client's methods unless they are wrapped.

    Leases that exist at the same time share a port. It is referred to weakly, as it refers to the
    client.
    """
    if not client_state.is_untouched(client):
        return AsyncioPort(client, client_state, ClientTransport(client))
    port: AsyncioPort | None = client_state.port()
    if port is None or port._transport is not client_state.sender.transport:
        transport = pool_transport(client_state.sender, client)
        port = AsyncioPort(client, client_state, transport)
        client_state.port = transport.port = ref(port)
    return port


def pool_transport(batcher: RequestBatcher, client: Any) -> PoolTransport:
    """The transport of a batcher that uses the client's pool and not its methods."""
    transport: PoolTransport | None = batcher.transport
    if transport is None:
        transport = batcher.transport = PoolTransport(batcher, client)
    return transport

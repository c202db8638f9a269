"""Requests by an asyncio client's own methods, and over a private connection for them alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.client_methods import (
    disconnect_idle,
    has_pipelines,
    has_single_connection,
    pipelined,
    undecoded,
)
from redis_lock_decorators._io.client_nodes import has_nodes, node_of, note_moved
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_clients import close_unused, is_closed
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.node_lookups import look_up_nodes_in_task
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import single_tries
from redis_lock_decorators._io.transport.asyncio_pool import PoolTransport
from redis_lock_decorators._io.transport.batch import (
    Redirection,
    starts_acquisition,
)
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.encoding import encoded
from redis_lock_decorators._io.transport.idle_connections import IdleConnections
from redis_lock_decorators._io.unconfigured import drop_unconfigured_idle

#: The longest time, in seconds, for which a cancelled acquisition waits for its replies.
CANCELLED_READ = 0.25


class ClientTransport:
    """The client's own methods: of a cluster client, or of one that the program has wrapped.

    A client that was closed is closed again after a release.
    """

    __slots__ = ("_client", "_redirections_left")

    may_resend = True
    opens_connections = False

    def __init__(self, client: Any, redirections_left: int = single_tries.MAX_REDIRECTIONS) -> None:
        self._client = client
        self._redirections_left = redirections_left

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        return await cancellable(self._send_batch(commands, until))

    async def _send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        was_closed = _remains_closed(self._client, commands)
        sending = self._replies(commands)
        try:
            async with timeout(until - monotonic(), sending):
                replies = await sending
        except asyncio.TimeoutError as error:
            if is_of_handler(error):
                raise
            await look_up_nodes_in_task(self._client, self._node(commands))
            raise self.no_reply() from None
        else:
            if client_errors.are_elsewhere(replies):
                await self.drop_idle_connections()
            return replies
        finally:
            if was_closed:
                await close_unused(self._client)

    def close(self) -> None:
        """Close nothing: all connections belong to the client."""

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self._client)

    async def drop_idle_connections(self) -> None:
        await disconnect_idle(self._client)

    def _node(self, commands: Sequence[tuple[Any, ...]]) -> object:
        """The node to which commands are sent; None without a cluster."""
        return node_of(self._client, commands[0]) if has_nodes(self._client) else None

    async def _replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if len(commands) == 1 and not has_single_connection(self._client):
            return [await self._one(commands[0])]
        return await self._many(commands)

    async def _one(self, command: tuple[Any, ...]) -> Any:
        """The reply to a command that is sent alone."""
        client, node = self._client, None
        if single_tries.is_due(client, command):
            await client.initialize()
            node = single_tries.master(client, command)
        if node is None:
            return await self._call(client.execute_command, command)
        reply = await self._call(node.execute_command, command)
        if client_errors.is_broken(reply):
            await look_up_nodes_in_task(client, self._node([command]))
            return await self._call(client.execute_command, command)
        return (await self._redirected([reply]))[0]

    async def _call(self, execute: Callable[..., Awaitable[Any]], command: tuple[Any, ...]) -> Any:
        try:
            return await execute(*encoded(command), **undecoded(self._client))
        except BaseException as error:
            return _failure(self._client, error)

    async def _many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        client = self._client
        if not has_pipelines(client):
            return [await self._one(command) for command in commands]
        is_cluster = hasattr(client, "nodes_manager")
        if is_cluster:
            await client.initialize()
        options = {"allow_redirections": False} if is_cluster else {}
        try:
            pipeline = pipelined(client, commands)
            replies: list[Any] = await pipeline.execute(raise_on_error=False, **options)
        except BaseException as error:
            failure = _failure(client, error)
            raise failure from failure.__cause__
        if any(map(client_errors.is_broken, replies)):
            await look_up_nodes_in_task(client, self._node(commands))
        return await self._redirected(replies)

    async def _redirected(self, replies: list[Any]) -> list[Any]:
        """The replies, with a ``Redirection`` for each that another node has to give."""
        for reply in single_tries.moved(self._client, replies):
            noted = note_moved(self._client, reply)
            if noted is not None:
                await noted
        for number in single_tries.redirected(replies):
            replies[number] = self._redirection(replies[number])
        return replies

    def _redirection(self, reply: Any) -> Redirection:
        target = single_tries.target(self._client, reply)
        if target is None or not self._redirections_left:
            return Redirection(single_tries.address(reply), OwnMethodTransport(self._client))
        left = self._redirections_left - 1
        return Redirection(target, NodeTransport(self._client, target, left), target.asks)


class NodeTransport(ClientTransport):
    """Sends commands together to the node to which they are redirected."""

    __slots__ = ("_target",)

    def __init__(self, client: Any, target: single_tries.Target, redirections_left: int) -> None:
        super().__init__(client, redirections_left)
        self._target = target

    def _node(self, commands: Sequence[tuple[Any, ...]]) -> object:
        return self._target

    async def _replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        client = self._client
        await client.initialize()
        try:
            pipeline = self._target.pipeline(client, commands)
            found = await pipeline.execute(raise_on_error=False, allow_redirections=False)
        except BaseException as error:
            failure = _failure(client, error)
            if len(commands) == 1 and self._target.is_left(failure):
                return [await self._call(client.execute_command, commands[0])]
            raise failure from failure.__cause__
        return await self._redirected(self._target.replies(found))


class OwnMethodTransport(ClientTransport):
    """Sends commands one by one by the client's own method, which finds their nodes."""

    __slots__ = ()

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        return await single_tries.one_by_one(super().send_batch, commands, until, self.no_reply)

    async def _replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [await self._call(self._client.execute_command, command) for command in commands]


async def with_redirected(
    replies: list[Any], commands: Sequence[tuple[Any, ...]], until: float
) -> list[Any]:
    """The replies to commands that are sent without a batcher, after redirections."""
    for number, reply in enumerate(replies):
        if isinstance(reply, Redirection):
            again = [commands[number]]
            found = await reply.transport.send_batch(again, until)
            (replies[number],) = await with_redirected(found, again, until)
    return replies


async def send_separately(
    client: Any,
    idle: IdleConnections,
    commands: Sequence[tuple[Any, ...]],
    until: float,
    sending: Sending | None = None,
) -> list[Any]:
    """Send commands together over a connection that others do not wait for.

    One of them may block the connection for a while. If the caller is cancelled, an acquisition is
    undone over another connection, so its replies are read before, for a short time.
    """
    batcher, limit = RequestBatcher(idle), idle.exclusive
    batcher.reads_on = acquires = any(map(starts_acquisition, commands))
    try:
        until = await limit.enter(batcher, client.connection_pool, until, acquires)
        transport = PoolTransport(batcher, client)
        replies = await batcher.exchange_together(transport, commands, until, sending)
        limit.note_reply()
    except asyncio.CancelledError:
        unread = None if batcher.late is None else batcher.late.unread
        if unread is not None:
            await asyncio.wait([unread], timeout=CANCELLED_READ)
        raise
    finally:
        limit.leave(batcher)
    return replies


def _failure(client: Any, error: BaseException) -> Exception:
    drop_unconfigured_idle(client, error)
    return client_errors.failure(client, error)


def _remains_closed(client: Any, commands: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a client was closed, and these commands start no acquisition."""
    return is_closed(client) and not any(map(starts_acquisition, commands))

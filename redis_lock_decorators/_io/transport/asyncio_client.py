"""Requests by an asyncio client's own methods, and over a private connection for them alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.client_methods import (
    disconnect_idle,
    has_pipelines,
    has_single_connection,
    pipelined,
    undecoded,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_clients import close_unused, is_closed
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.asyncio_pool import PoolTransport
from redis_lock_decorators._io.transport.batch import starts_acquisition
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.encoding import encoded
from redis_lock_decorators._io.transport.idle_connections import IdleConnections


class ClientTransport:
    """The client's own methods: of a cluster client, or of one that the program has wrapped.

    A client that was closed is closed again after a release.
    """

    __slots__ = ("_client",)

    may_resend = True

    def __init__(self, client: Any) -> None:
        self._client = client

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        return await cancellable(self._send_batch(commands, until))

    async def _send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        was_closed = _remains_closed(self._client, commands)
        try:
            async with timeout(until - monotonic()):
                if len(commands) == 1 and not has_single_connection(self._client):
                    replies = [await self._one(commands[0])]
                else:
                    replies = await self._many(commands)
        except asyncio.TimeoutError:
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

    async def _one(self, command: tuple[Any, ...]) -> Any:
        try:
            return await self._client.execute_command(*encoded(command), **undecoded(self._client))
        except Exception as error:
            return client_errors.meant(self._client, error)

    async def _many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not has_pipelines(self._client):
            return [await self._one(command) for command in commands]
        if hasattr(self._client, "nodes_manager"):
            await self._client.initialize()
        try:
            pipeline = pipelined(self._client, commands)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            failure = client_errors.meant(self._client, error)
            raise failure from failure.__cause__
        return replies


async def send_separately(
    client: Any, idle: IdleConnections, commands: Sequence[tuple[Any, ...]], until: float
) -> list[Any]:
    """Send commands together over a connection that others do not wait for.

    One of them may block the connection for a while.
    """
    batcher = RequestBatcher(idle)
    return await batcher.exchange_together(PoolTransport(batcher, client), commands, until)


def _remains_closed(client: Any, commands: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a client was closed, and these commands start no acquisition."""
    return is_closed(client) and not any(map(starts_acquisition, commands))

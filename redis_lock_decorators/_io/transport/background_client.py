"""A blocking client's own methods, called from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.client_methods import disconnect
from redis_lock_decorators._io.client_nodes import has_nodes
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.node_lookups import LONGEST_LOOKUP, look_up_nodes
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import single_tries
from redis_lock_decorators._io.transport.batch import Redirection
from redis_lock_decorators._io.transport.client_calls import (
    own_replies_of,
    replies_at,
    replies_by_own_method,
)
from redis_lock_decorators._io.transport.thread_calls import NoThread, in_thread


class ThreadTransport:
    """A blocking client's own methods, called on a separate thread.

    There is one call at a time per node: if it hangs, the next one waits for it.
    """

    may_resend = True
    opens_connections = False

    def __init__(
        self,
        client: Any,
        client_state: ClientState[Any],
        redirections_left: int = single_tries.MAX_REDIRECTIONS,
    ) -> None:
        self._client = client
        self._client_state = client_state
        self._redirections_left = redirections_left
        self._calls: dict[object, asyncio.Future[Any]] = {}

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        node = self._client_state.node(self._client, commands[0])
        call = partial(own_replies_of, self._client, commands)
        return self._redirected(await self._called(node, call, until))

    def _redirected(self, replies: list[Any]) -> list[Any]:
        """The replies, with a ``Redirection`` for each that another node has to give."""
        for number in single_tries.redirected(replies):
            replies[number] = self._redirection(replies[number])
        return replies

    def _redirection(self, reply: Any) -> Redirection:
        target = single_tries.target(self._client, reply)
        if target is None or not self._redirections_left:
            address = single_tries.address(reply)
            return Redirection(address, OwnMethodCalls(self, address))
        return Redirection(target, RedirectedCalls(self, target))

    async def _called(
        self, node: object, call_client: Callable[[], list[Any]], until: float
    ) -> list[Any]:
        """The result of a call on a separate thread, after that of an earlier one at this node."""
        try:
            async with timeout(until - monotonic()):
                while (call := self._calls.get(node)) is not None and not call.done():
                    await asyncio.wait([call])
                call = asyncio.ensure_future(in_thread(call_client))
                self._calls[node] = call
                replies: list[Any] = await asyncio.shield(call)
                return replies
        except asyncio.TimeoutError:
            await self._look_up_nodes(node)
            raise self.no_reply() from None

    async def _look_up_nodes(self, silent: object) -> None:
        if has_nodes(self._client):
            with suppress(NoThread, asyncio.TimeoutError):
                async with timeout(LONGEST_LOOKUP):
                    await in_thread(partial(look_up_nodes, self._client, silent))

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self._client)

    async def drop_idle_connections(self) -> None:
        await in_thread(partial(disconnect, self._client))

    def close(self) -> None:
        """Close nothing: all connections belong to the client."""


class RedirectedCalls(ThreadTransport):
    """Calls for commands that nodes have redirected to another one: only these wait for it.

    Args:
        parent: the transport that got the redirections.
        target: the other node.
    """

    def __init__(self, parent: ThreadTransport, target: single_tries.Target) -> None:
        left = parent._redirections_left - 1
        super().__init__(parent._client, parent._client_state, left)
        self._calls = parent._calls
        self._target = target

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        call = partial(replies_at, self._client, self._target, commands)
        return self._redirected(await self._called(self._target, call, until))


class OwnMethodCalls(ThreadTransport):
    """Calls of the client's own method, which finds the nodes of commands, one by one.

    Args:
        parent: the transport that got redirections which only that method can follow.
        key: the key of these calls.
    """

    def __init__(self, parent: ThreadTransport, key: object) -> None:
        super().__init__(parent._client, parent._client_state)
        self._calls = parent._calls
        self._key = key

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        return await single_tries.one_by_one(self._call, commands, until, self.no_reply)

    async def _call(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        call = partial(replies_by_own_method, self._client, commands)
        return await self._called(self._key, call, until)

"""The two ways to an asyncio client's server: past its ``execute_command``, or through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.client_state import (
    disconnect_idle,
    has_pipelines,
    pipelined,
    undecoded,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_clients import close_unused, is_closed
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batch import Exchange, starts_acquisition
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.borrowed import BorrowedConnection, borrow
from redis_lock_decorators._io.transport.encoding import encoded, packed

#: A pool with fewer connections than this needs each of them for its owner's work.
SPARE = 10


class PoolTransport:
    """Over one connection of the client's pool, kept for us while the client is open.

    Closed with the client: what is let go afterwards leaves none open in it, until somebody begins
    with another lock. Its time-outs are ours: one timer for all instead of two a command.
    Where the pool is small, or if it ``keeps`` none, the connection is given back after each trip.
    """

    __slots__ = ("_batcher", "_is_closed", "_keeps", "_last", "_named", "_returning", "pool")

    may_resend = False

    def __init__(self, batcher: RequestBatcher, pool: Any, named: bool, keeps: bool = True) -> None:
        self._batcher = batcher
        self.pool = pool
        self._named = named
        self._keeps = keeps and getattr(pool, "max_connections", 0) >= SPARE
        self._returning: list[BorrowedConnection] = []
        self._is_closed = False  # the client was
        self._last: BorrowedConnection | None = None  # of those that are given back after each trip

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        try:
            borrowed = self._batcher.kept
            self._look_whether_closed(borrowed or self._last, commands)
            if borrowed is not None and not borrowed.is_usable():
                self._spoil(borrowed)
            if borrowed is None or self._returning:
                borrowed = await self._fresh(commands[0][0], until)
        except BaseException as error:
            client_errors.unsent(error)
            raise
        under_way = self._batcher.under_way = Exchange(
            borrowed.connection, until, borrowed.patience
        )
        replies: list[Any] = []
        try:
            data = b"".join([packed(command) for command in commands])
            await borrowed.connection.send_packed_command([data], check_health=False)
            await _read(under_way, len(commands), replies)
        except BaseException as error:
            # Replies may still be on the way: they must never be read as other commands'.
            self._spoil(borrowed)
            if not isinstance(error, GeneratorExit):
                await self._return()
            if not isinstance(error, Exception):
                raise
            failure = client_errors.meant(self.pool, error)
            if under_way.is_ended:
                failure = client_errors.caused(self.no_reply(), error)
            if not replies:
                raise failure from failure.__cause__
            return replies + [client_errors.own_copy(failure) for _ in commands[len(replies) :]]
        finally:
            self._batcher.under_way = None
        if self._is_closed or client_errors.are_elsewhere(replies):
            self._spoil(borrowed)
        elif self._batcher.kept is not borrowed:
            self._returning.append(borrowed)
            self._last = borrowed
        if self._returning:
            await self._return()
        return replies

    def close(self) -> None:
        """Nothing is open but what is the client's."""

    async def return_connections(self) -> None:
        """Give back the connection that is kept."""
        kept, self._batcher.kept = self._batcher.kept, None
        if kept is not None:
            self._returning.append(kept)
        await self._return()

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self.pool)

    async def drop_idle_connections(self) -> None:
        if self._batcher.under_way is not None:
            self._batcher.under_way.end()
        elif self._batcher.kept is not None:
            self._spoil(self._batcher.kept)
            await self._return()

    def _look_whether_closed(
        self, borrowed: BorrowedConnection | None, commands: Sequence[tuple[Any, ...]]
    ) -> None:
        """Know whether the client was closed, and nobody uses it for a new lock since."""
        if borrowed is not None and borrowed.is_closed:
            self._is_closed, self._last = True, None
        if self._is_closed:
            self._is_closed = not any(map(starts_acquisition, commands))

    def _second(self, batcher: RequestBatcher) -> PoolTransport:
        """The way over another connection, for a courier that does not wait for this one's."""
        return PoolTransport(batcher, self.pool, self._named, keeps=False)

    async def _fresh(self, name: str, until: float) -> BorrowedConnection:
        borrowed = await cancellable(self._opened(name, until), self._forgo)
        self._keep(borrowed)
        return borrowed

    async def _opened(self, name: str, until: float) -> BorrowedConnection:
        self._batcher.opening = self._second
        try:
            async with timeout(until - monotonic()):
                await self._return()
                return self._batcher.kept or await self._lent(name, until)
        except asyncio.TimeoutError:
            raise self.no_reply() from None
        finally:
            self._batcher.opening = None

    def _keep(self, borrowed: BorrowedConnection) -> bool:
        """Keep a connection for the next trips, if it may be and there is no other; whether so."""
        kept = self._batcher.kept
        if kept is None and self._keeps and borrowed.is_of_pool and not self._is_closed:
            kept = self._batcher.kept = borrowed
        return kept is borrowed

    async def _forgo(self, borrowed: BorrowedConnection) -> None:
        """Keep or give back what was opened for a task that was cancelled meanwhile."""
        if not self._keep(borrowed) and borrowed not in self._returning:
            self._returning.append(borrowed)
            await self._return()

    async def _lent(self, name: str, until: float) -> BorrowedConnection:
        """A connection of the pool, opened anew if it was closed while it lay there."""
        names = (name,) if self._named else ()
        borrowed = await borrow(self.pool, names, until)
        if not borrowed.is_usable():
            self._spoil(borrowed)
            await self._return()
            borrowed = await borrow(self.pool, names, until)
        return borrowed

    def _spoil(self, borrowed: BorrowedConnection) -> None:
        borrowed.spoil()
        if self._batcher.kept is borrowed:
            self._batcher.kept = None
        if borrowed not in self._returning:
            self._returning.append(borrowed)

    async def _return(self) -> None:
        """Give back what is not needed; if that is interrupted, the next trip does the rest."""
        while self._returning:
            borrowed = self._returning.pop()
            try:
                with contextlib.suppress(Exception):  # it is closed: the pool connects it anew
                    await borrowed.end()
            except BaseException:
                self._returning.append(borrowed)
                raise


class ClientTransport:
    """By the client's own methods: a cluster's, or one that somebody wrapped.

    What is let go after the client was closed leaves it closed.
    """

    __slots__ = ("_client",)

    may_resend = True

    def __init__(self, client: Any) -> None:
        self._client = client

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        was_closed = is_left_closed(self._client, commands)
        try:
            return await self._send_batch(commands, until)
        finally:
            if was_closed:
                await close_unused(self._client)

    async def _send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        try:
            async with timeout(until - monotonic()):
                if len(commands) == 1:
                    replies = [await self._one(commands[0])]
                else:
                    replies = await self._many(commands)
        except asyncio.TimeoutError:
            raise self.no_reply() from None
        if client_errors.are_elsewhere(replies):
            await self.drop_idle_connections()
        return replies

    def close(self) -> None:
        """Nothing is open but what is the client's."""

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
    client: Any, named: bool, commands: Sequence[tuple[Any, ...]], until: float
) -> list[Any]:
    """Send commands together past the client's own methods, which might repeat them.

    They have a connection of its pool to themselves: one of them may block it for a while.
    """
    batcher = RequestBatcher()
    transport = PoolTransport(batcher, client.connection_pool, named, keeps=False)
    was_closed = is_left_closed(client, commands)
    try:
        return await batcher.exchange_together(transport, commands, until)
    finally:
        if was_closed:
            await close_unused(client)


def is_left_closed(client: Any, commands: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a client was closed, and nobody begins with a lock by these commands."""
    return is_closed(client) and not any(map(starts_acquisition, commands))


async def _read(under_way: Exchange, count: int, replies: list[Any]) -> None:
    """Append the replies as they come, as bytes whatever the client decodes.

    The first by the connection's own method. Those after it have mostly come with it: its parser
    is asked for them, without what the connection does for each.
    """
    connection = under_way.connection
    parser = getattr(connection, "_parser", connection)
    read, read_next = connection.read_response, parser.read_response
    while len(replies) < count:
        try:
            reply = await read(disable_decoding=True)
            if isinstance(reply, Exception):
                raise reply
        except OSError as error:  # which the connection's own method turns into this
            raise client_errors.closed(connection, f"error while reading: {error}") from error
        except Exception as error:
            if not client_errors.is_reply(error):
                raise
            reply = error
        replies.append(reply)
        if len(replies) < count:
            under_way.expect_reply()
            read = read_next

"""Requests over a connection of an asyncio client's pool, past its ``execute_command``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batch import Exchange, starts_acquisition
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.borrowed import BorrowedConnection, borrow
from redis_lock_decorators._io.transport.encoding import packed

#: Of a pool with fewer connections than this none is kept: the program needs all of them.
SPARE = 10


class PoolTransport:
    """One connection of the client's pool, kept while the client is open.

    The connection is closed with the client. A release after that opens one only for its own
    exchange; the next acquisition keeps one again. Timeouts are measured by the batcher: one timer
    for all requests instead of two per command. A small pool, or a transport that does not
    ``keep``, gets its connection back after each exchange.
    """

    __slots__ = ("_batcher", "_is_closed", "_keeps", "_last", "_named", "_returning", "pool")

    may_resend = False

    def __init__(self, batcher: RequestBatcher, pool: Any, named: bool, keep: bool = True) -> None:
        self._batcher = batcher
        self.pool = pool
        self._named = named
        self._keeps = keep and getattr(pool, "max_connections", 0) >= SPARE
        self._returning: list[BorrowedConnection] = []
        self._is_closed = False  # the client was closed
        self._last: BorrowedConnection | None = None  # the last one that was given back

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        try:
            borrowed = self._batcher.kept
            self._note_whether_closed(borrowed or self._last, commands)
            if borrowed is not None and not borrowed.is_usable():
                self._abort(borrowed)
            if borrowed is None or self._returning:
                borrowed = await self._connection(commands[0][0], until)
        except BaseException as error:
            client_errors.mark_unsent(error)
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
            # Replies may still arrive: they must never be read as those of other commands.
            self._abort(borrowed)
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
            self._abort(borrowed)
        elif self._batcher.kept is not borrowed:
            self._returning.append(borrowed)
            self._last = borrowed
        if self._returning:
            await self._return()
        return replies

    def close(self) -> None:
        """Close nothing: all connections belong to the client."""

    async def return_connections(self) -> None:
        """Return the kept connection to the pool."""
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
            self._abort(self._batcher.kept)
            await self._return()

    def _note_whether_closed(
        self, borrowed: BorrowedConnection | None, commands: Sequence[tuple[Any, ...]]
    ) -> None:
        """Note that the client was closed, until an acquisition uses it again."""
        if borrowed is not None and borrowed.is_closed:
            self._is_closed, self._last = True, None
        if self._is_closed:
            self._is_closed = not any(map(starts_acquisition, commands))

    def _second(self, batcher: RequestBatcher) -> PoolTransport:
        """A transport with another connection, for a batcher that does not wait for this one."""
        return PoolTransport(batcher, self.pool, self._named, keep=False)

    async def _connection(self, name: str, until: float) -> BorrowedConnection:
        borrowed = await cancellable(self._opened(name, until), self._store)
        self._keep(borrowed)
        return borrowed

    async def _opened(self, name: str, until: float) -> BorrowedConnection:
        self._batcher.opening = self._second
        try:
            async with timeout(until - monotonic()):
                await self._return()
                return self._batcher.kept or await self._borrowed(name, until)
        except asyncio.TimeoutError:
            raise self.no_reply() from None
        finally:
            self._batcher.opening = None

    def _keep(self, borrowed: BorrowedConnection) -> bool:
        """Keep a connection for the next exchanges if possible; returns whether it is kept."""
        kept = self._batcher.kept
        if kept is None and self._keeps and borrowed.is_pooled and not self._is_closed:
            kept = self._batcher.kept = borrowed
        return kept is borrowed

    async def _store(self, borrowed: BorrowedConnection) -> None:
        """Keep or return a connection whose task was cancelled while it was opened."""
        if not self._keep(borrowed) and borrowed not in self._returning:
            self._returning.append(borrowed)
            await self._return()

    async def _borrowed(self, name: str, until: float) -> BorrowedConnection:
        """A connection of the pool, opened again if it was closed while idle."""
        names = (name,) if self._named else ()
        borrowed = await borrow(self.pool, names, until)
        if not borrowed.is_usable():
            self._abort(borrowed)
            await self._return()
            borrowed = await borrow(self.pool, names, until)
        return borrowed

    def _abort(self, borrowed: BorrowedConnection) -> None:
        borrowed.abort()
        if self._batcher.kept is borrowed:
            self._batcher.kept = None
        if borrowed not in self._returning:
            self._returning.append(borrowed)

    async def _return(self) -> None:
        """Return connections to the pool; after an interrupt the next exchange does the rest."""
        while self._returning:
            borrowed = self._returning.pop()
            try:
                with contextlib.suppress(Exception):  # it is closed: the pool opens it again
                    await borrowed.give_back()
            except BaseException:
                self._returning.append(borrowed)
                raise


async def _read(under_way: Exchange, count: int, replies: list[Any]) -> None:
    """Append the replies as they arrive, as bytes whatever the client decodes.

    The connection's own method reads the first. The others have mostly arrived with it and are
    read from its parser, without the per-reply work of the connection.
    """
    connection = under_way.connection
    parser = getattr(connection, "_parser", connection)
    read, read_next = connection.read_response, parser.read_response
    while len(replies) < count:
        try:
            reply = await read(disable_decoding=True)
            if isinstance(reply, Exception):
                raise reply
        except OSError as error:  # the connection's own method raises the client's error instead
            raise client_errors.closed(connection, f"error while reading: {error}") from error
        except Exception as error:
            if not client_errors.is_reply(error):
                raise
            reply = error
        replies.append(reply)
        if len(replies) < count:
            under_way.expect_reply()
            read = read_next

"""Requests over private connections of an asyncio client, past its ``execute_command``.

They are separate from the client's pool for the same reasons as those of threads
(``private_pool``): the program may select another database or user on a connection of its pool,
may use all of them, and no setting of them is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any
from weakref import ref

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.starting import start_unlisted
from redis_lock_decorators._io.client_state import no_port
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import raise_if_closed
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batch import is_renewal, starts_acquisition
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.encoding import packed_together
from redis_lock_decorators._io.transport.exchange import Exchange
from redis_lock_decorators._io.transport.idle_connections import IdleConnections
from redis_lock_decorators._io.transport.openings import added
from redis_lock_decorators._io.transport.task_connection import TaskConnection
from redis_lock_decorators._io.weak_references import call_when_freed, weak
from redis_lock_decorators._rules.redaction import described


class PoolTransport:
    """Private connections like those of a client's pool, one for each exchange of a batcher.

    Each exchange uses the pool that the client has then: a program may replace it. The idle
    connections are closed when the client is deleted, without the garbage collector: a program may
    make a client for each of its requests. So client and batcher, which refer to the transport, are
    referred to weakly; what sends keeps both alive.
    Timeouts are measured by the batcher: one timer for all requests instead of two per command.

    Attributes:
        port: a weak reference to a port that sends over it.
    """

    __slots__ = ("_batcher", "_client", "_idle", "_pool", "port")

    may_resend = False
    opens_connections = True

    def __init__(self, batcher: RequestBatcher, client: Any) -> None:
        self._batcher: Callable[[], Any] = ref(batcher)  # alive during its exchanges
        self._idle = batcher.idle
        self._client = weak(client)
        call_when_freed(client, IdleConnections.close_with_client, self._idle)
        self._pool = client.connection_pool
        self.port: Callable[[], Any] = no_port

    @property
    def pool(self) -> Any:
        """The client's pool; the last one known after the client was garbage-collected."""
        client = self._client()
        if client is not None:
            self._pool = client.connection_pool
        return self._pool

    async def send_batch(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        idle, pool, batcher = self._idle, self.pool, self._batcher()
        is_closed = idle.is_closed
        sendings, batcher.sendings = batcher.sendings, ()
        try:
            if is_closed and any(map(starts_acquisition, commands)):
                is_closed = False
                idle.reopen()
            found = idle.usable(pool) or await self._opened(pool, until)
        except BaseException as error:
            if isinstance(error, client_errors.PoolReplaced) and (port := self.port()) is not None:
                port.use_methods()
            client_errors.mark_caught(error)
            raise
        until = max(until, found.in_time_until)
        under_way = batcher.under_way = Exchange(found.connection, until, found.patience)
        replies: list[Any] = []
        is_sent = False
        try:
            for sending in sendings:
                sending()
            data = packed_together(commands)
            await found.connection.send_packed_command([data], check_health=False)
            is_sent = True
            await under_way.read(found.replies, len(commands), replies)
        except BaseException as error:
            if is_sent and batcher.reads_on and isinstance(error, asyncio.CancelledError):
                work = _read_on(found, under_way, len(commands), replies)
                batcher.late_replies().unread = start_unlisted(work)
                raise
            # Replies may still arrive: they must never be read as those of other commands.
            found.close()
            if not isinstance(error, Exception):
                raise
            batcher.refuse_copy()
            raise_if_closed(found.loop)
            idle.drop()
            failure = client_errors.meant(pool, error)
            if under_way.is_ended:
                failure = client_errors.caused(self.no_reply(), error)
            if not replies:
                raise failure from failure.__cause__
            return replies + [client_errors.own_copy(failure) for _ in commands[len(replies) :]]
        finally:
            batcher.under_way = None
        if client_errors.are_elsewhere(replies):
            found.close()
            idle.drop()
        elif is_closed and all(map(is_renewal, commands)):
            idle.keep_for_renewals(found)
        else:
            idle.keep(found)
        return replies

    def close(self) -> None:
        """Close the idle connections."""
        self._idle.drop()

    def no_reply(self) -> Exception:
        return client_errors.no_reply(self.pool)

    async def drop_idle_connections(self) -> None:
        batcher = self._batcher()
        if batcher is not None and batcher.under_way is not None:
            batcher.under_way.end()
        self._idle.drop()

    def _second(self, batcher: RequestBatcher) -> PoolTransport:
        """A transport for a batcher that does not wait for the connection that is being opened."""
        second = copy(self)
        second._batcher = ref(batcher)
        return second

    async def _opened(self, pool: Any, until: float) -> TaskConnection:
        batcher = self._batcher()
        batcher.opening = self._second
        try:
            found = await added(self._idle, pool, until)
            batcher.refuse_copy()
            batcher.in_time_until = found.in_time_until
            return found
        finally:
            batcher.opening = None


async def _read_on(
    found: TaskConnection, under_way: Exchange, count: int, replies: list[Any]
) -> list[Any]:
    """Read the replies that a cancelled task no longer reads; fewer if some do not arrive."""
    try:
        # The event loop may have stood still meanwhile, with the replies in the socket.
        async with timeout(max(under_way.until - monotonic(), ROUND_TRIP)):
            await under_way.read(found.replies, count, replies)
    except Exception as error:
        log.debug("no late reply: %s", described(error))
    finally:
        found.close()
    return replies

"""A private connection of an asyncio client for the exchanges of one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, limit_after_queueing, with_send_time
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import raise_if_closed
from redis_lock_decorators._io.timeouts import Expiry
from redis_lock_decorators._io.transport.encoding import packed
from redis_lock_decorators._io.transport.exchange import Exchange
from redis_lock_decorators._io.transport.idle_connections import IdleConnections
from redis_lock_decorators._io.transport.inherited import refuse_copy
from redis_lock_decorators._io.transport.openings import added
from redis_lock_decorators._io.transport.task_connection import TaskConnection


class TaskExclusive:
    """A private connection for the exchanges of one transaction."""

    __slots__ = ("__weakref__", "_idle", "_pool", "_process", "_until", "_used")

    def __init__(self, idle: IdleConnections, pool: Any, until: float) -> None:
        self._idle = idle
        self._pool = pool
        self._until = until
        self._used: TaskConnection | None = None
        self._process = fork.process_id

    async def exchange(
        self, commands: Sequence[tuple[Any, ...]], sending: Sending | None = None
    ) -> list[Any]:
        refuse_copy(self._process)
        if self._used is None:
            self._until = await self._idle.exclusive.enter(self, self._pool, self._until)
        admitted = monotonic()
        try:
            return await self._admitted(commands, sending)
        except Exception as error:
            with_send_time(error, admitted)
            raise

    async def _admitted(
        self, commands: Sequence[tuple[Any, ...]], sending: Sending | None
    ) -> list[Any]:
        pool, until = self._pool, self._until
        found = self._used or self._idle.usable(pool)
        if found is None:
            found = self._used = await added(self._idle, pool, until)
            refuse_copy(self._process)
        if self._used is not None and until < (least := monotonic() + ROUND_TRIP):
            until = limit_after_queueing(until, least)  # the server has answered on this connection
        self._used, until = found, max(until, found.in_time_until)
        connection, replies = found.connection, list[Any]()
        under_way = Exchange(connection, until)
        try:
            # No task is cancelled: the garbage collector may have closed this coroutine.
            expire = partial(self._expire, under_way)
            with Expiry(min(until - monotonic(), found.patience), expire):
                data = b"".join([packed(command) for command in commands])
                if sending is not None:
                    sending()
                await connection.send_packed_command([data], check_health=False)
                await under_way.read(found.replies, len(commands), replies)
        except Exception as error:
            refuse_copy(self._process)
            raise_if_closed(found.loop)
            if under_way.is_ended:
                raise client_errors.no_reply(pool) from None
            failure = client_errors.meant(pool, error)
            raise failure from failure.__cause__
        self._idle.exclusive.note_reply()
        return replies

    def _expire(self, under_way: Exchange) -> None:
        under_way.end()
        self._idle.exclusive.leave(self)

    def end(self, is_kept: bool) -> None:
        if self._used is not None and is_kept:
            self._idle.keep(self._used)
        elif self._used is not None:
            self._used.close()
            self._idle.drop()
        self._idle.exclusive.leave(self)

"""Connections of asyncio clients that are being opened, for as long as that takes.

Over a slow link, opening takes longer than some callers wait. If each opening ended with its
caller, and the next caller began another one, none would ever be completed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import Any
from weakref import ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import private_connection
from redis_lock_decorators._io.transport.idle_connections import IdleConnections
from redis_lock_decorators._io.transport.origins import Origin, origin
from redis_lock_decorators._io.transport.task_connection import TaskConnection, opened
from redis_lock_decorators._rules.redaction import described


class Opening:
    """A connection that a background task opens; one caller at a time waits for it.

    If the caller gives up, the next one waits for it instead; if it is open before, it is kept as
    an idle connection.
    """

    __slots__ = ("_find_idle", "_is_left", "_loop", "_origin", "_process", "_task")

    def __init__(self, idle: IdleConnections, pool: Any, until: float) -> None:
        self._find_idle = ref(idle)
        self._loop = asyncio.get_running_loop()
        self._origin = origin(pool)  # before it is opened: the pool may lead elsewhere by then
        self._process = fork.process_id
        self._is_left = False
        began = monotonic()
        latest = max(until, began + private_connection.PATIENCE)
        task: Any = start(_outcome(pool, self._origin, latest, began))
        task._log_destroy_pending = False  # the event loop may be closed before it is done
        self._task: asyncio.Future[Any] = task
        self._task.add_done_callback(self._keep_if_left, context=Context())

    def serves(self, pool: Any) -> bool:
        """Whether it is being opened, or was this moment, and leads where the pool leads now."""
        if self._process != fork.process_id or self._origin != origin(pool):
            return False
        if not self._task.done():
            return True
        found = None if self._task.cancelled() else self._task.result()
        return isinstance(found, TaskConnection) and found.serves(pool)

    async def outcome(self, pool: Any, until: float) -> TaskConnection | Exception | None:
        """Wait for the connection until then; None if its task was cancelled, but not this one.

        The error of the opening is returned: it is referred to from here, so to raise it here would
        be a reference cycle.
        """
        self._is_left = False
        waiting = asyncio.wait([self._task])
        try:
            async with timeout(until - monotonic(), waiting):
                await waiting
        except BaseException as error:
            self._leave()
            if isinstance(error, asyncio.TimeoutError) and not is_of_handler(error):
                raise client_errors.no_reply(pool) from None
            raise
        outcome: TaskConnection | Exception | None = None
        if not self._task.cancelled():
            outcome = self._task.result()
        return outcome

    def cancel(self) -> None:
        """Cancel it, from any thread."""
        if is_running_here(self._loop):
            self._task.cancel()
        else:
            call_on(self._loop, self._task.cancel)

    def _leave(self) -> None:
        """Let another caller wait for it; from any thread: the garbage collector closes waits."""
        if not is_running_here(self._loop):
            call_on(self._loop, self._leave)
            return
        idle, self._is_left = self._find_idle(), True
        if self._task.done():
            self._keep_if_left(self._task)
        elif idle is None:
            self.cancel()
        else:
            idle.openings.append(self)

    def _keep_if_left(self, task: asyncio.Future[Any]) -> None:
        if not self._is_left:
            return
        self._is_left, idle = False, self._find_idle()
        if idle is not None:
            with suppress(ValueError):  # another thread took it, to cancel it
                idle.openings.remove(self)
        found = None if task.cancelled() else task.result()
        if isinstance(found, Exception):
            log.info("a connection was not opened: %s", described(found))
        elif found is not None:
            found.close() if idle is None else idle.keep(found)


async def added(idle: IdleConnections, pool: Any, until: float) -> TaskConnection:
    """A new connection, which is closed with the pool once it is idle.

    Exchanges over it may last as long as it took to open: over a slow link, it would otherwise be
    closed before its first reply.
    """
    idle.follow(pool)  # before: the client may be closed while the connection is opened
    while True:
        found = await (_left(idle, pool) or Opening(idle, pool, until)).outcome(pool, until)
        if isinstance(found, TaskConnection):
            return found
        try:
            if found is not None:
                raise found from found.__cause__
        finally:
            del found  # its traceback refers to this frame: a reference cycle


def _left(idle: IdleConnections, pool: Any) -> Opening | None:
    """Remove and return an opening for which no caller waits; cancel those that lead elsewhere."""
    openings = idle.openings
    with suppress(IndexError):  # another thread took the last one
        while openings:
            opening: Opening = openings.pop()
            if opening.serves(pool):
                return opening
            opening.cancel()
    return None


async def _outcome(
    pool: Any, leads_to: Origin, until: float, began: float
) -> TaskConnection | Exception:
    """A new connection like those of a pool, or the error of opening it.

    If the server is silent in a step of opening it, and time is left, another one is tried once:
    this one may be half open.
    """
    try:
        try:
            connection = await opened(pool.connection_class, pool.connection_kwargs, until)
        except Exception as error:
            if monotonic() >= until or not client_errors.is_timeout(error):
                raise
            began = monotonic()
            latest = max(until, began + private_connection.PATIENCE)
            connection = await opened(pool.connection_class, pool.connection_kwargs, latest)
        found = TaskConnection(connection, leads_to)
        now = monotonic()
        found.in_time_until = now + min(now - began, ROUND_TRIP)
        return found
    except Exception as error:
        return client_errors.meant(pool, error)

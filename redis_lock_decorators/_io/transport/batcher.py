"""Sends the requests that tasks make at the same time together, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.timeouts import limit_after_queueing, with_send_time
from redis_lock_decorators._io import error_replies
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batch import (
    Redirection,
    Request,
    Transport,
    starts_acquisition,
)
from redis_lock_decorators._io.transport.batch_sender import LOOP_TURNS, MIN_REPLY_TIME
from redis_lock_decorators._io.transport.encoding import check
from redis_lock_decorators._io.transport.exchange import Exchange
from redis_lock_decorators._io.transport.exchange_watch import WatchedSender
from redis_lock_decorators._io.transport.idle_connections import IdleConnections

#: A timer that is late by more seconds than this shows that the event loop was blocked.
LATE_TIMER = 0.05
#: The key of the batcher that sends while a connection is being opened.
SECOND_CONNECTION = object()


class RequestBatcher(WatchedSender):
    """Sends a request directly if none is under way; those made meanwhile form the next batches.

    Only one exchange is under way at a time, so that the tasks of a client share one connection. A
    cluster has one batcher per node. Requests are sent in the order in which
    they were made, but those that start an acquisition follow those that continue or end one.
    A batcher belongs to one event loop.

    Attributes:
        transport: the transport past the client's own methods, once there is one.
        idle: the client's idle private connections, which its batchers share.
        opening: while a connection is being opened: makes a transport for another batcher that
            opens another one.
    """

    __slots__ = ("__weakref__", "_batchers", "idle", "opening", "transport")

    def __init__(self, idle: IdleConnections | None = None) -> None:
        super().__init__()
        self._batchers: dict[object, RequestBatcher] = {}
        self.transport: Any = None
        self.idle = IdleConnections() if idle is None else idle
        self.opening: Callable[[RequestBatcher], Transport] | None = None

    def separate(self, key: object) -> RequestBatcher:
        """The batcher for a key: a node of a cluster, or a kind of requests that cannot wait."""
        found = self._batchers.get(key)
        if found is None:
            found = self._batchers[key] = RequestBatcher(self.idle)
        return found

    def all(self) -> Iterator[RequestBatcher]:
        """This batcher and its separate ones."""
        yield self
        for batcher in list(self._batchers.values()):
            yield from batcher.all()

    def transports(self) -> Iterator[Transport]:
        """The transports of this batcher and its separate ones past the client's own methods."""
        return (batcher.transport for batcher in self.all() if batcher.transport is not None)

    def request(
        self,
        transport: Transport,
        command: tuple[Any, ...],
        until: float,
        sending: Sending | None = None,
    ) -> Awaitable[Any]:
        """``exchange``, to be awaited immediately; a queued request then needs no coroutine."""
        runner = self._runner
        # Mostly the sending task is under way: that is found out here in fewer steps.
        if (isinstance(runner, asyncio.Task) and not runner.done()) or self.is_busy:
            return self.queue(transport, command, until, False, sending)
        return self.exchange(transport, command, until, False, sending)

    async def exchange(
        self,
        transport: Transport,
        command: tuple[Any, ...],
        until: float,
        first: bool = False,
        sending: Sending | None = None,
    ) -> Any:
        """Send a command and return its reply, in the calling task if no exchange is under way.

        While the server answers the requests ahead of it, a queued request waits past ``until``,
        up to ``until.end`` (see ``_flow.timeouts``). With ``first`` it is sent before all others
        in the queue. ``sending`` is called just before its first byte is sent, or before it is
        handed to the client's methods. If opening a connection fails, the error is marked as
        unsent, unless a program may raise it again.
        """
        if first or self.is_busy:
            return await self.queue(transport, command, until, first, sending)
        if self._process != fork.process_id:
            self.refuse_copy()
        check(command)
        began = monotonic()
        if self._timer is None or self._check_by < began:
            self._restart_checks(transport)
        if until < began + MIN_REPLY_TIME:
            until = limit_after_queueing(until, began + MIN_REPLY_TIME)
        self._caller = asyncio.current_task()
        self.reads_on, self.sendings = sending is not None, ()
        if sending is not None and transport.opens_connections:
            self.sendings = (sending,)
        elif sending is not None:
            sending()
        under_way = None
        try:
            self._runner = under_way = transport.send_batch([command], until)
            replies = await under_way
            self._note_replies(began)
        except Exception as error:
            self._turns_for_retries = LOOP_TURNS
            with_send_time(error, max(began, self._unblocked))
            raise
        except BaseException:
            if self.late is not None and self.late.unread is not None:
                self._leave_unread(transport, command, until, sending)
            raise
        finally:
            # Not if it was abandoned (see ``exchange_watch``), and another one is under way now.
            if self._runner is under_way or not self.is_busy:
                self._caller = None
                self._send_next(transport)
        if len(replies) != 1:
            raise transport.no_reply()
        if isinstance(replies[0], Exception):
            if error_replies.lacks(replies[0]) == "script":
                self._turns_for_retries = LOOP_TURNS
            if not isinstance(replies[0], Redirection):
                raise replies.pop()
            moved: Redirection = replies.pop()
            other = self.separate(moved.key)
            return await other.exchange(moved.transport, command, until, first, sending)
        return replies[0]

    async def exchange_together(
        self,
        transport: Transport,
        commands: Sequence[tuple[Any, ...]],
        until: float,
        sending: Sending | None = None,
    ) -> list[Any]:
        """Send commands as the only exchange of this batcher, and return their replies.

        The transport is one that opens connections.
        """
        for command in commands:
            check(command)
        self._restart_checks(transport)
        began = monotonic()
        if until < began + MIN_REPLY_TIME:
            until = limit_after_queueing(until, began + MIN_REPLY_TIME)
        if sending is not None:
            self.sendings = (sending,)
        try:
            self._runner = under_way = transport.send_batch(commands, until)
            replies = await under_way
        except Exception as error:
            with_send_time(error, max(began, self._unblocked))
            raise
        finally:
            self._runner = None
        if len(replies) != len(commands):
            raise transport.no_reply()
        return replies

    def _redirect(self, request: Request, redirection: Redirection) -> None:
        other, transport = self.separate(redirection.key), redirection.transport
        if other._timer is None or other._check_by < monotonic():
            other._restart_checks(transport)
        other._pending.add(request)
        other._earliest_end = min(other._earliest_end, request.end)
        other._send_if_idle(transport)

    def _leave_unread(
        self, transport: Transport, command: tuple[Any, ...], until: float, sending: Sending | None
    ) -> None:
        """Let a late reply be found by the ``sending`` of a release that was cut short."""
        reply = self._loop.create_future()
        reply.cancel()
        self._read_on([Request(command, reply, until, monotonic(), sending=sending)], transport)

    def queue(
        self,
        transport: Transport,
        command: tuple[Any, ...],
        until: float,
        first: bool = False,
        sending: Sending | None = None,
    ) -> asyncio.Future[Any]:
        """Queue a command for the next batches; returns the future of its reply."""
        if self._process != fork.process_id:
            self.refuse_copy()
        check(command)
        now = monotonic()
        reply: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        if self._timer is None or self._check_by < now:
            self._restart_checks(transport)
        if until < now + MIN_REPLY_TIME:
            until = limit_after_queueing(until, now + MIN_REPLY_TIME)
        request = Request(command, reply, until, now, first, sending)
        self._pending.add(request)
        if request.end < self._earliest_end:
            self._earliest_end = request.end
        if first:
            # Half of its time remains for another connection.
            self._check_later(transport, request, (until - now) / 2)
            self._send_if_idle(transport)
        return reply

    def withdraw(self, identifier: str, sending: Sending | None) -> None:
        """Cancel the queued requests that ``Port.withdraw`` names."""
        for queue in self._pending.queues():
            for request in list(queue):
                command = request.command
                is_release = sending is not None and request.sending is sending
                if is_release or (starts_acquisition(command) and identifier in command):
                    request.reply.cancel()

    def _check_later(self, transport: Transport, request: Request, seconds: float) -> None:
        """Check after so many seconds whether an urgent request was answered."""
        when = self._loop.time() + max(0.0, seconds)
        self._loop.call_at(when, self._check_urgent, transport, request, when, context=Context())

    def _check_urgent(self, transport: Transport, request: Request, when: float) -> None:
        """End the exchange under way if the server was silent for all of a request's time.

        Its connection may be half open, where a new connection would bring a reply.
        """
        if request.reply.done():
            return
        self._send_if_idle(transport)
        if self.opening is not None and not request.is_sent_twice:
            self._send_on_second(self.opening, request)
        left = self.urgent_until(request, self._last_reply) - monotonic()
        if left > 0:
            self._check_later(transport, request, left)
        elif self._loop.time() > when + LATE_TIMER:  # replies that have arrived are read first
            self._end_if_silent(self.under_way, self._last_reply)
        elif self.under_way is not None:
            self.under_way.end()

    def _end_if_silent(
        self, under_way: Exchange | None, last_reply: float, turns: int = LOOP_TURNS
    ) -> None:
        """End an exchange unless a reply arrives in the next iterations of the event loop.

        Not after a fixed time, which a program with slow steps would always exceed.
        """
        if under_way is None or self.under_way is not under_way or self._last_reply != last_reply:
            return
        if turns:
            again = partial(self._end_if_silent, under_way, last_reply, turns - 1)
            self._loop.call_soon(again, context=Context())
        else:
            under_way.end()

    def _send_on_second(
        self, opening: Callable[[RequestBatcher], Transport], request: Request
    ) -> None:
        """Send a request over another connection too, while one is opened that may hang."""
        request.is_sent_twice = True
        batcher = self.separate(SECOND_CONNECTION)
        until = self.urgent_until(request, self._last_reply)
        exchange = partial(batcher.exchange, opening(batcher), request.command, until, first=True)
        work = partial(asyncio.Task, _set_reply(exchange, request), loop=self._loop)
        self._tasks.add(Context().run(work))


async def _set_reply(exchange: Callable[[], Awaitable[Any]], request: Request) -> None:
    """Set the reply of an exchange; if that fails, the first connection's outcome counts."""
    with suppress(Exception):
        request.set_reply(await exchange())

"""The queue of an event loop's requests, and the task that sends them in batches."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Coroutine
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._flow.timeouts import with_send_time
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.background.outcomes import settle
from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._io.transport.batch import (
    PendingRequests,
    Redirection,
    Request,
    Transport,
    ends_lease,
)
from redis_lock_decorators._io.transport.batch_failures import is_of_one, lacked_text
from redis_lock_decorators._io.transport.inherited import refuse_copy
from redis_lock_decorators._io.transport.late_replies import LateReplies
from redis_lock_decorators.errors import LockError

#: The most requests in one batch. While the server works on one batch, the tasks that received
#: replies from the previous one prepare their next requests.
BATCH_SIZE = 100
#: Iterations of the event loop that are granted for reading what has arrived in the meantime, and
#: for the tasks that receive it to send their next requests.
LOOP_TURNS = 4
#: Checks without a reply after which the server counts as silent, not only as busy with others.
SILENT_CHECKS = 4
#: The least time for a reply, in seconds, also of a request that is sent shortly before its end.
MIN_REPLY_TIME = 0.5
#: Seconds for which a release waits until it is sent to a silent server: what it ends may be run
#: when the server continues, and would last until it expires.
UNSENT_RELEASE_TIME = 2.0
#: The states of a coroutine that has started and not ended.
UNFINISHED = (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)


class BatchSender:
    """Sends queued requests in batches, one exchange at a time.

    Any task may be cancelled, also the sending task before its first step. Requests that were not
    sent are then sent in a later batch; the outcome of those that were sent is unknown.

    A signal handler may raise at any line, also before a line that records the end of an exchange.
    ``is_busy`` therefore inspects the coroutine or task of the exchange, not a flag.
    """

    __slots__ = (
        "_answered",
        "_caller",
        "_earliest_end",
        "_last_reply",
        "_loop",
        "_new_wait",
        "_pending",
        "_process",
        "_round_trips",
        "_runner",
        "_sent",
        "_sent_at",
        "_silent_checks",
        "_tasks",
        "_turns_for_retries",
        "_unblocked",
        "in_time_until",
        "late",
        "reads_on",
        "sendings",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = background_tasks()
        self._process = fork.process_id
        self._pending = PendingRequests()
        self._earliest_end = math.inf  # no pending request times out before
        #: What runs the exchange under way: a coroutine that a caller awaits, or the sending task.
        self._runner: Coroutine[Any, Any, Any] | asyncio.Task[None] | None = None
        self._caller: asyncio.Task[Any] | None = None  # the task that awaits the coroutine
        self._last_reply = 0.0  # when the last reply arrived
        self._round_trips = 0.0, math.inf  # how many seconds the last two took
        self._silent_checks = 0  # checks since then
        self._unblocked = -math.inf  # when the event loop last continued after it was blocked
        # After a failure the failed requests are sent again before new ones: the remaining
        # iterations of the event loop in which new ones wait for that.
        self._turns_for_retries = 0
        self._new_wait = False  # they wait while this batch is sent
        self._sent: list[Request] = []  # the requests of the exchange under way
        self._sent_at = 0.0  # when they were sent
        self._answered: list[Request] = []  # those that were just answered
        #: Whether a release is among them: then a transport reads on after a cancellation.
        self.reads_on = False
        #: What a transport calls for the releases of an exchange before its first byte.
        self.sendings: tuple[Sending, ...] = ()
        #: Until when no request is late, as a connection was opened before; set by a transport.
        self.in_time_until = -math.inf
        self.late: LateReplies | None = None  # once there are late replies

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop to which it belongs."""
        return self._loop

    @property
    def is_busy(self) -> bool:
        """Whether an exchange is under way, so that a request has to queue."""
        runner = self._runner
        if runner is None:
            return False
        if isinstance(runner, asyncio.Task):
            return not runner.done()
        return inspect.getcoroutinestate(runner) in UNFINISHED

    def _note_reply(self) -> None:
        self._last_reply, self._silent_checks = monotonic(), 0

    def _note_replies(self, began: float) -> None:
        now = monotonic()
        self._last_reply, self._silent_checks = now, 0
        self._round_trips = self._round_trips[1], now - began

    def _send_if_idle(self, transport: Transport) -> None:
        if self._pending and not self.is_busy:
            self._send_next(transport)

    def _send_next(self, transport: Transport) -> None:
        """Start the task that sends the pending requests, if there are any of this process."""
        self._runner = None
        if self._process != fork.process_id:
            return
        if self._pending and not is_running_here(self._loop):
            call_on(self._loop, self._send_if_idle, transport)
        elif self._pending:
            # A task factory of the program might run it immediately, inside the caller's step.
            work = partial(asyncio.Task, self._send_pending(transport), loop=self._loop)
            self._runner = runner = Context().run(work)
            self._tasks.add(runner, partial(self._task_ended, transport, runner))

    def _task_ended(self, transport: Transport, task: asyncio.Task[None]) -> None:
        if task is self._runner:  # it was cancelled, possibly before its first step
            self._send_next(transport)

    async def _send_pending(self, transport: Transport) -> None:
        # If the code that started this task was interrupted before it stored the task, another
        # task sends the requests.
        is_own = self._process == fork.process_id
        while is_own and self._pending and self._runner is self._tasks.current():
            self._new_wait = self._turns_for_retries > 0
            if self._new_wait:
                self._turns_for_retries -= 1
            if self._new_wait and self._pending.are_all_new:
                await asyncio.sleep(0)
                is_own = self._process == fork.process_id
                continue
            batch: list[Request] = []
            try:
                self._fill(batch, transport)
                if batch:
                    await self._send(batch, transport)
            finally:
                self._fail_unanswered(batch, transport)
            if not self._pending:
                await asyncio.sleep(0)  # the tasks that received replies queue their next requests
                self._answered = []
            is_own = self._process == fork.process_id
        if not is_own:
            self._refuse_pending()
        elif self._runner is self._tasks.current():
            self._runner = None

    def refuse_copy(self) -> None:
        """Raise an error in a copy of a task in a forked child."""
        refuse_copy(self._process)

    def _refuse_pending(self) -> None:
        """Fail the pending requests in a forked child, as the parent sends them."""
        try:
            self.refuse_copy()
        except LockError as error:
            for queue in self._pending.queues():
                while queue:
                    queue.popleft().set_reply(client_errors.own_copy(error))

    def _fill(self, batch: list[Request], transport: Transport) -> None:
        now, is_silent = monotonic(), self._silent_checks >= SILENT_CHECKS
        pending = self._pending
        for queue in pending.sent_before_new() if self._new_wait else pending.queues():
            while queue and len(batch) < BATCH_SIZE:
                if batch and (batch[0].alone or queue[0].alone):
                    return
                batch.append(queue.popleft())  # one step: an interrupt must not lose the request
                request = batch[-1]
                is_in_time = now < request.end and not is_silent
                if request.reply.done() or not (
                    is_in_time or self._is_in_time(request, now, transport)
                ):
                    del batch[-1]

    async def _send(self, batch: list[Request], transport: Transport) -> None:
        """Send a batch and set its replies; requests that were not answered remain in the list."""
        self._sent_at = now = monotonic()
        self._sent, self.reads_on, self.sendings = batch, False, ()
        try:
            for request in batch:
                if request.sending is not None:
                    self.reads_on = True
                    if transport.opens_connections:
                        self.sendings += (request.sending,)
                    else:
                        request.sending()
            commands = [request.command for request in batch]
            replies = await transport.send_batch(commands, self._batch_until(batch, now))
            self._note_replies(now)
        except Exception as error:
            if is_of_one(error, batch):
                self._put_back(batch, alone=True)
                return
            self._expect_retries()
            replies = [client_errors.own_copy(error) for _ in batch]
        except BaseException as error:
            if not client_errors.was_sent(error):
                self._put_back(batch)
            elif self.late is not None and self.late.unread is not None:
                self._sent = batch[:]
                self._read_on(self._sent, transport)
                batch.clear()
            raise
        if self.reads_on:  # a caller may be cancelled before it sees its reply
            self._answered = batch[:]
        self._set_replies(batch, replies, max(now, self._unblocked), may_repeat=True)

    def _set_replies(
        self, batch: list[Request], replies: list[Any], began: float, may_repeat: bool = False
    ) -> None:
        without_text: list[Request] = []
        if len(replies) == len(batch):  # otherwise it is unknown which reply is whose
            for request, reply in zip(batch, replies, strict=True):
                if (is_done := request.reply.done()) and request.sending is not None:
                    is_done = not self.late_replies().expect(request)
                if isinstance(reply, Exception):
                    if error_replies.lacks(reply) == "script":
                        self._expect_retries()
                    if isinstance(reply, Redirection):
                        self._redirect(request, reply)
                    elif may_repeat and lacked_text(request, reply):
                        without_text.append(request)
                    else:
                        request.set_reply(with_send_time(reply, began))
                elif not is_done:
                    settle(request.reply, reply)
            batch.clear()
        self._put_back(without_text, alone=True)

    def _expect_retries(self) -> None:
        """Let the requests of a batch that are sent again precede new ones, which wait only once.

        Otherwise those whose requests always fail would keep the others from acquiring.
        """
        if not self._new_wait:
            self._turns_for_retries = LOOP_TURNS

    def _redirect(self, request: Request, redirection: Redirection) -> None:
        """Let another batcher send a request. Only transports of clusters demand that."""
        raise NotImplementedError

    def _read_on(self, batch: list[Request], transport: Transport) -> None:
        """Leave the replies to a batch to the task that reads on after a cancellation."""
        late = self.late_replies()
        unread, late.unread = late.unread, None
        if unread is None:
            return
        began = monotonic()
        for request in batch:
            late.expect(request)

        def read(_: object) -> None:
            is_read = not unread.cancelled() and unread.exception() is None
            self._set_replies(batch, unread.result() if is_read else [], began)
            self._fail_unanswered(batch, transport)

        unread.add_done_callback(read, context=Context())

    def late_replies(self) -> LateReplies:
        """The late replies, in an object that is made when it is needed."""
        if self.late is None:
            self.late = LateReplies()
        return self.late

    def late_reply(self, sending: Sending) -> asyncio.Future[Any] | None:
        """The future of the reply to a release that was sent, and whose caller was cancelled."""
        for request in (*self._sent, *self._answered):
            if request.sending is sending:
                self.late_replies().expect(request)
                return request.reply
        return None if self.late is None else self.late.pop(sending)

    def _fail_unanswered(self, batch: list[Request], transport: Transport) -> None:
        if not self._loop.is_closed():
            for request in batch:
                if not request.reply.done():  # rare: creating the error takes time
                    request.set_reply(transport.no_reply())
        batch.clear()

    def _put_back(self, batch: list[Request], alone: bool = False) -> None:
        for request in batch:
            request.alone = request.alone or alone
        self._pending.put_back(batch)
        batch.clear()

    def _drop_expired(self, transport: Transport) -> None:
        now = monotonic()
        self._pending.retain(
            lambda one: not one.reply.done() and self._is_in_time(one, now, transport)
        )
        self._earliest_end = self._pending.earliest_end()

    def _fail_overdue(self, now: float, transport: Transport) -> None:
        """Fail the requests under way whose own time is over, as others of the batch have more.

        Not releases: whoever sent one reads the reply if it arrives later.
        """
        began = max(self._sent_at, self._unblocked)
        for request in self._sent:
            until = max(request.deadline(began), began + MIN_REPLY_TIME, self.in_time_until)
            is_exempt = request.first or request.sending is not None or request.reply.done()
            if until <= now and not is_exempt:
                request.set_reply(with_send_time(transport.no_reply(), began))

    def _is_in_time(self, request: Request, now: float, transport: Transport) -> bool:
        """Whether a request is still worth sending; fails it if not."""
        is_silent = self._silent_checks >= SILENT_CHECKS
        if (now < request.end and not is_silent) or now < self.in_time_until:
            return True
        latest = min(request.end, request.since + UNSENT_RELEASE_TIME)
        if now < latest and ends_lease(request.command):
            return True
        if not is_silent and self._had_no_chance(request, now):
            return True
        last_reply = max(self._last_reply, self._unblocked)
        if now < (request.deadline(last_reply) if is_silent else request.end):
            return True
        if is_silent or self._last_reply <= request.since:
            request.set_reply(client_errors.mark_unsent(transport.no_reply()))
        else:
            others = f"{len(self._pending)} lock requests of this event loop were queued"
            request.set_reply(NeverSent(f"its request timed out before it was sent: {others}"))
        return False

    def _had_no_chance(self, request: Request, now: float) -> bool:
        """Whether a request waited only for one exchange, or for a blocked event loop.

        It is sent then, also late: otherwise a short silence would make a free lock look busy.
        """
        return now < self._unblocked + MIN_REPLY_TIME or (
            self._sent_at < request.since < self._last_reply
        )

    def _batch_until(self, batch: list[Request], now: float) -> float:
        """The latest time for the replies to a batch; that of its urgent requests, if any."""
        urgent = [self.urgent_until(request, now) for request in batch if request.first]
        if urgent:
            return min(urgent)
        latest = now + MIN_REPLY_TIME
        for request in batch:
            if now + request.reply_seconds > latest:  # false for most: they have the same deadline
                latest = max(latest, request.deadline(now))
        return latest

    def urgent_until(self, request: Request, last_reply: float) -> float:
        """The latest time for the reply to an urgent request.

        Less than two round trips would end exchanges with a distant server whose replies are under
        way. One reply that took long does not make it distant.
        """
        return max(request.urgent_deadline(last_reply), last_reply + 2 * min(self._round_trips))

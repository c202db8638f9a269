"""Requests of tasks that are under way at the same time travel together."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._flow.timeouts import left, prolonged
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.supervised import halt, works
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batch import Exchange, PendingRequests, Request, Transport
from redis_lock_decorators._io.transport.encoding import check

#: The most requests that one trip takes: while the server works on one load, those whom the last
#: one served prepare their next requests.
BATCH_SIZE = 100
#: Seconds between two looks at what takes too long: one timer then, not one for each request.
LOOK = 0.25
#: Seconds by which a timer is late if something has blocked the event loop.
LATE = 0.05
#: Turns in which it reads what came meanwhile, and tells it; and who was told asks again.
TURNS = 4
#: Looks without a reply after which the server is silent, and not only busy with other requests.
SILENT = 4
#: The least time for a reply, in seconds: also of a request that left shortly before its end.
LEAST = 0.5
#: What tells the courier for those that do not wait for a connection from that for nodes.
BESIDE = object()
#: The states of an exchange that has begun and has not ended.
UNDER_WAY = (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)


class RequestBatcher:
    """Carries one request directly, and those that come meanwhile together after it.

    Never more than one trip is under way, so a client's tasks share one connection (in a cluster,
    one for each node, each with its own courier). First come, first served, but what was begun
    goes before what begins. Of one event loop.

    Anybody may cancel any task, also one of ours before its first step: then what has not left
    travels in another, and what has left is not known. An exception from outside, as from a signal
    handler, may come at any line, also before those that say that an exchange is over: so whether
    one is under way is asked of the exchange itself.

    Attributes:
        transport: the way past the client's own methods, once there is one.
        kept: a connection of the client's pool that only we use, once there is one.
        opening: while a connection is being opened: makes a transport that opens another one.
        under_way: the exchange under way, ended here if it takes too long.
    """

    __slots__ = (
        "_answered",
        "_bearer",
        "_caller",
        "_due",
        "_first_end",
        "_looks_by",
        "_loop",
        "_nodes",
        "_quiet",
        "_skipped",
        "_stuck",
        "_timer",
        "_turns_to_repeat",
        "_waiting",
        "_woken",
        "_works",
        "kept",
        "opening",
        "transport",
        "under_way",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._works = works()
        self._nodes: dict[object, RequestBatcher] = {}
        self.transport: Any = None
        self.kept: Any = None
        self.opening: Callable[[RequestBatcher], Transport] | None = None
        self.under_way: Exchange | None = None
        self._answered = 0.0  # when the last reply came
        self._woken = -math.inf  # when the event loop went on after something had blocked it
        self._quiet = 0  # looks since then
        # Where a caller stands though it could go on, and since when.
        self._stuck: tuple[object, float] = None, 0.0
        self._skipped = False
        # Who got no reply is about to ask once more: so many turns of the event loop are left for
        # that, before others leave who came after them.
        self._turns_to_repeat = 0
        # The exchange under way: what a caller awaits, or a task of ours for those who wait.
        self._bearer: Coroutine[Any, Any, Any] | asyncio.Task[None] | None = None
        self._caller: asyncio.Task[Any] | None = None  # who awaits one under way
        self._waiting = PendingRequests()
        self._first_end = math.inf  # none of those who wait is late before
        self._timer: asyncio.TimerHandle | None = None
        self._looks_by = -math.inf  # later than that, its look was lost
        self._due = math.inf  # when the next look was due first, by the event loop's clock

    @property
    def is_busy(self) -> bool:
        """Whether a request would have to wait for others."""
        bearer = self._bearer
        if bearer is None:
            return False
        if isinstance(bearer, asyncio.Task):
            return not bearer.done()
        return inspect.getcoroutinestate(bearer) in UNDER_WAY

    def beside(self, node: object) -> RequestBatcher:
        """Another courier: to one node of a cluster, or for what cannot wait."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = RequestBatcher()
        return found

    def all(self) -> Iterator[RequestBatcher]:
        """This one and those beside it."""
        yield self
        for batcher in list(self._nodes.values()):
            yield from batcher.all()

    def transports(self) -> Iterator[Transport]:
        """The ways past the client's own methods that this one and those beside it have."""
        return (batcher.transport for batcher in self.all() if batcher.transport is not None)

    async def rest(self) -> None:
        """Give back the connections that are kept, if nothing is under way on them."""
        for batcher in self.all():
            if batcher.transport is not None and not batcher.is_busy:
                await batcher.transport.rest()

    def request(
        self, transport: Transport, command: tuple[Any, ...], until: float
    ) -> Awaitable[Any]:
        """The same as ``exchange``, to be awaited at once: who waits has no coroutine for that."""
        if self.is_busy:
            return self.queue(transport, command, until)
        return self.exchange(transport, command, until)

    async def exchange(
        self, transport: Transport, command: tuple[Any, ...], until: float, first: bool = False
    ) -> Any:
        """Send a command and return its reply, in the calling task if nothing is under way.

        With ``first`` it leaves before all that wait. A request that waits for others does so past
        ``until`` while the server answers those, to the end that ``until`` may have (see
        ``_flow.timeouts``).
        """
        if first or self.is_busy:
            return await self.queue(transport, command, until, first)
        check(command)
        began = monotonic()
        if self._timer is None or self._looks_by < began:
            self._watch_anew(transport)
        if until < began + LEAST:
            until = prolonged(until, began + LEAST)
        self._caller = asyncio.current_task()
        try:
            self._bearer = under_way = transport.send_batch([command], until)
            replies = await under_way
            self._heard()
        except Exception as error:
            self._turns_to_repeat = TURNS
            left(error, max(began, self._woken))
            raise
        finally:
            self._caller = None
            self._go_on(transport)
        if len(replies) != 1:
            raise transport.no_reply()
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    async def exchange_together(
        self, transport: Transport, commands: Sequence[tuple[Any, ...]], until: float
    ) -> list[Any]:
        """Send commands as the only trip of this courier, and return their replies."""
        for command in commands:
            check(command)
        self._heard()
        self._watch(transport)
        began = monotonic()
        if until < began + LEAST:
            until = prolonged(until, began + LEAST)
        try:
            self._bearer = under_way = transport.send_batch(commands, until)
            replies = await under_way
        except Exception as error:
            left(error, max(began, self._woken))
            raise
        finally:
            self._bearer = None
        if len(replies) != len(commands):
            raise transport.no_reply()
        return replies

    def queue(
        self, transport: Transport, command: tuple[Any, ...], until: float, first: bool = False
    ) -> asyncio.Future[Any]:
        """Have a command travel with others; the future reply."""
        check(command)
        now, reply = monotonic(), self._loop.create_future()
        if self._timer is None or self._looks_by < now:
            self._watch_anew(transport)
        if until < now + LEAST:
            until = prolonged(until, now + LEAST)
        request = Request(command, reply, until, now, first)
        self._waiting.add(request)
        if request.end < self._first_end:
            self._first_end = request.end
        if first:
            self._hurry(transport, request, (until - now) / 2)  # time for another connection
            self._go_on_if_idle(transport)
        return reply

    def _hurry(self, transport: Transport, request: Request, seconds: float) -> None:
        """Look after so long whether a request that cannot wait was answered."""
        when = self._loop.time() + max(0.0, seconds)
        self._loop.call_at(when, self._look_at, transport, request, when, context=Context())

    def _look_at(self, transport: Transport, request: Request, when: float) -> None:
        """End the trip under way if the server was silent for the whole time of a request.

        Its connection may be half open, while a new one would bring a reply.
        """
        if request.reply.done():
            return
        self._go_on_if_idle(transport)
        if self.opening is not None and not request.beside:
            self._go_beside(self.opening, request)
        left = request.patience(self._answered) - monotonic()
        if left > 0:
            self._hurry(transport, request, left)
        elif self._loop.time() > when + LATE:  # what came meanwhile is to be read first
            self._end_unheard(self.under_way, self._answered)
        elif self.under_way is not None:
            self.under_way.end()

    def _end_unheard(self, under_way: Exchange | None, answered: float, turns: int = TURNS) -> None:
        """End a trip if nothing is heard on it while the event loop turns a few times more.

        Not after some time: where each step of a program takes long, that would never come.
        """
        if under_way is None or self.under_way is not under_way or self._answered != answered:
            return
        if turns:
            again = partial(self._end_unheard, under_way, answered, turns - 1)
            self._loop.call_soon(again, context=Context())
        else:
            under_way.end()

    def _go_beside(self, opening: Callable[[RequestBatcher], Transport], request: Request) -> None:
        """Send a request on another connection as well, while one that may hang is opened."""
        request.beside = True
        batcher = self.beside(BESIDE)
        exchange = batcher.exchange(
            opening(batcher), request.command, request.patience(self._answered), first=True
        )
        work = partial(asyncio.Task, _tell_too(exchange, request), loop=self._loop)
        self._works.add(Context().run(work))

    def _heard(self) -> None:
        self._answered, self._quiet = monotonic(), 0

    def _watch_anew(self, transport: Transport) -> None:
        """Look after a pause from now on, as nothing was under way, or a look was lost."""
        self._heard()
        self._watch(transport, self._due)

    def _watch(self, transport: Transport, due: float = math.inf) -> None:
        """Look after a pause, in place of a look that was ``due`` and has not come.

        An exception from outside may have lost that; or something blocks the event loop.
        """
        if self._timer is not None:
            self._timer.cancel()
        when = self._loop.time() + LOOK
        self._due = min(due, when)
        # In a context of its own: a timer would keep that of one caller for all.
        self._timer = self._loop.call_at(when, self._look, transport, context=Context())
        self._looks_by = monotonic() + (1 + SILENT) * LOOK

    def _look(self, transport: Transport) -> None:
        now = monotonic()
        # After something has blocked the event loop, what came meanwhile is to be read first.
        was_blocked = self._loop.time() > self._due + LOOK
        self._skipped = was_blocked and not self._skipped
        if was_blocked:
            self._woken = now
        if not self._skipped:
            self._quiet += 1
            self._end_late(now)
            if self._quiet >= SILENT or self._first_end <= now:
                self._drop_late(transport)
            self._leave_stuck()
        self._timer, self._due = None, math.inf
        self._go_on_if_idle(transport)
        if self.is_busy:
            self._watch(transport)

    def _end_late(self, now: float) -> None:
        """End a trip that takes too long, and one once more that was ended and is not over."""
        trip = self.under_way
        if trip is not None and (trip.cut or max(trip.until, self._woken + LEAST) <= now):
            trip.end()

    def _leave_stuck(self) -> None:
        """Give up the exchange of a caller that nobody will wake any more.

        Work in the background is carried on by another task (see ``supervised``). What asyncio has
        lost of a program's own task is the program's; but the others are to go on.
        """
        bearer, (former, since), self._stuck = self._bearer, self._stuck, (None, 0.0)
        if not inspect.iscoroutine(bearer) or inspect.getcoroutinestate(bearer) not in UNDER_WAY:
            return
        if self._caller is None or self._works.looks_after(self._caller):
            return
        at, now = halt(self._caller), self._loop.time()
        self._stuck = at, since if at is former else now
        if at is not None and at is former and now >= since + LOOK:
            self._bearer = None
            with suppress(Exception):  # it would await something once more
                bearer.close()

    def _drop_late(self, transport: Transport) -> None:
        now = monotonic()
        self._waiting.keep(
            lambda one: not one.reply.done() and self._is_in_time(one, now, transport)
        )
        self._first_end = self._waiting.first_end()

    def _is_in_time(self, request: Request, now: float, transport: Transport) -> bool:
        """Whether it is still of use; who waited for too long is told."""
        is_silent = self._quiet >= SILENT
        if now < request.end and not is_silent:
            return True
        answered = max(self._answered, self._woken)
        if now < (request.last(answered) if is_silent else request.end):
            return True
        request.notify(client_errors.unsent(transport.no_reply()) if is_silent else self._unsent())
        return False

    def _unsent(self) -> NeverSent:
        others = len(self._waiting)
        return NeverSent(f"its request did not leave in time, as {others} of this event loop wait")

    def _go_on_if_idle(self, transport: Transport) -> None:
        if self._waiting and not self.is_busy:
            self._go_on(transport)

    def _go_on(self, transport: Transport) -> None:
        """Let those travel who wait, if there are any."""
        self._bearer = None
        if self._waiting and not self._loop.is_closed():
            # No task factory of the program's may run it at once, inside the caller's own step.
            work = partial(asyncio.Task, self._travel(transport), loop=self._loop)
            self._bearer = bearer = Context().run(work)
            self._works.add(bearer, partial(self._arrived, transport, bearer))

    def _arrived(self, transport: Transport, task: asyncio.Task[None]) -> None:
        if task is self._bearer:  # it was cancelled, maybe before its first step
            self._go_on(transport)

    async def _travel(self, transport: Transport) -> None:
        # Who began this may have been interrupted before it was known: then another goes.
        while self._waiting and self._bearer is self._works.current():
            if self._turns_to_repeat and self._waiting.are_new:
                self._turns_to_repeat -= 1
                await asyncio.sleep(0)
                continue
            batch: list[Request] = []
            try:
                self._next_batch(transport, batch)
                if batch:
                    await self._deliver(transport, batch)
            finally:
                self._tell_rest(transport, batch)
            if not self._waiting:
                await asyncio.sleep(0)  # those who were served have their next request ready
        if self._bearer is self._works.current():
            self._bearer = None

    def _next_batch(self, transport: Transport, batch: list[Request]) -> None:
        now, is_silent = monotonic(), self._quiet >= SILENT
        for line in self._waiting.lines():
            while line and len(batch) < BATCH_SIZE:
                if batch and (batch[0].alone or line[0].alone):
                    return
                batch.append(line.popleft())  # at once: an interrupt must not lose it
                request = batch[-1]
                is_in_time = now < request.end and not is_silent
                if request.reply.done() or not (
                    is_in_time or self._is_in_time(request, now, transport)
                ):
                    del batch[-1]

    async def _deliver(self, transport: Transport, batch: list[Request]) -> None:
        """Tell a load its replies; what is not told in the end stays in it."""
        now = monotonic()
        try:
            replies = await transport.send_batch([one.command for one in batch], _until(batch, now))
            self._heard()
        except Exception as error:
            if _is_of_one(error, batch):
                self._put_back(batch, alone=True)
                return
            self._turns_to_repeat = TURNS
            replies = [client_errors.own_copy(error) for _ in batch]
        except BaseException as error:
            if not client_errors.was_sent(error):
                self._put_back(batch)
            raise
        began = max(now, self._woken)
        if len(replies) == len(batch):  # else nobody knows which reply is whose
            for request, reply in zip(batch, replies, strict=True):
                if isinstance(reply, Exception):
                    request.notify(left(reply, began))
                elif not request.reply.done():
                    request.reply.set_result(reply)
            batch.clear()

    def _tell_rest(self, transport: Transport, batch: list[Request]) -> None:
        if not self._loop.is_closed():
            for request in batch:
                if not request.reply.done():  # most were told: to make an error takes its time
                    request.notify(transport.no_reply())

    def _put_back(self, batch: list[Request], alone: bool = False) -> None:
        for request in batch:
            request.alone = request.alone or alone
        self._waiting.put_back(batch)
        batch.clear()


async def _tell_too(exchange: Coroutine[Any, Any, Any], request: Request) -> None:
    """Tell a reply; what fails is left to the first way."""
    with suppress(Exception):
        request.notify(await exchange)


def _is_of_one(error: Exception, batch: list[Request]) -> bool:
    """Whether an error may be the fault of one request of a load, or of none.

    What a signal handler raises is nobody's: each is tried once more.
    """
    if not client_errors.is_outcome(error):
        return not batch[0].alone
    is_known = client_errors.was_sent(error) and not client_errors.is_unknown(error)
    return is_known and len(batch) > 1


def _until(batch: list[Request], now: float) -> float:
    """How long a load is waited for: no longer than one of it that cannot wait has time."""
    hurried = [request.patience(now) for request in batch if request.first]
    if hurried:
        return min(hurried)
    latest = now + LEAST
    for one in batch:
        if now + one.time > latest:  # none is waited for any longer, and most for as long
            latest = max(latest, one.last(now))
    return latest

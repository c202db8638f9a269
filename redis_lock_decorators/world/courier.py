"""Requests of tasks that are under way at the same time travel together."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators.flow.patience import left, prolonged
from redis_lock_decorators.flow.requests import Unsent
from redis_lock_decorators.world import failures
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.trips import Backlog, Carrier, Request, Trip
from redis_lock_decorators.world.wire import check
from redis_lock_decorators.world.works import halt, works

#: The most requests that one trip takes: while the server works on one load, those whom the last
#: one served prepare their next requests.
LOAD = 100
#: Seconds between two looks at what takes too long: one timer then, not one for each request.
LOOK = 0.25
#: Seconds by which a timer is late if something has blocked the event loop.
LATE = 0.05
#: Turns in which it reads what came meanwhile, and tells it.
TURNS = 4
#: Looks without a reply after which the server is silent, and not only busy with other requests.
SILENT = 4
#: The least time for a reply, in seconds: also of a request that left shortly before its end.
LEAST = 0.5
#: What tells the courier for those that do not wait for a connection from that for nodes.
BESIDE = object()
#: The states of an exchange that has begun and has not ended.
UNDER_WAY = (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)


class Courier:
    """Carries one request directly, and those that come meanwhile together after it.

    Never more than one trip is under way, so a client's tasks share one connection (in a cluster,
    one for each node, each with its own courier). First come, first served, but what was begun
    goes before what begins. Of one event loop.

    Anybody may cancel any task, also one of ours before its first step: then what has not left
    travels in another, and what has left is not known. An exception from outside, as from a signal
    handler, may come at any line, also before those that say that an exchange is over: so whether
    one is under way is asked of the exchange itself.

    Attributes:
        carrier: the way past the client's own methods, once there is one.
        kept: a connection of the client's pool that only we use, once there is one.
        opening: while a connection is being opened: makes a carrier that opens another one.
        trip: the exchange under way, ended here if it takes too long.
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
        "_waiting",
        "_woken",
        "_works",
        "carrier",
        "kept",
        "opening",
        "trip",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._works = works()
        self._nodes: dict[object, Courier] = {}
        self.carrier: Any = None
        self.kept: Any = None
        self.opening: Callable[[Courier], Carrier] | None = None
        self.trip: Trip | None = None
        self._answered = 0.0  # when the last reply came
        self._woken = -math.inf  # when the event loop went on after something had blocked it
        self._quiet = 0  # looks since then
        # Where a caller stands though it could go on, and since when.
        self._stuck: tuple[object, float] = None, 0.0
        self._skipped = False
        # The exchange under way: what a caller awaits, or a task of ours for those who wait.
        self._bearer: Coroutine[Any, Any, Any] | asyncio.Task[None] | None = None
        self._caller: asyncio.Task[Any] | None = None  # who awaits one under way
        self._waiting = Backlog()
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

    def beside(self, node: object) -> Courier:
        """Another courier: to one node of a cluster, or for what cannot wait."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = Courier()
        return found

    def all(self) -> Iterator[Courier]:
        """This one and those beside it."""
        yield self
        for courier in list(self._nodes.values()):
            yield from courier.all()

    def carriers(self) -> Iterator[Carrier]:
        """The ways past the client's own methods that this one and those beside it have."""
        return (courier.carrier for courier in self.all() if courier.carrier is not None)

    async def rest(self) -> None:
        """Give back the connections that are kept, if nothing is under way on them."""
        for courier in self.all():
            if courier.carrier is not None and not courier.is_busy:
                await courier.carrier.rest()

    async def exchange(
        self, carrier: Carrier, command: tuple[Any, ...], until: float, first: bool = False
    ) -> Any:
        """Send a command and return its reply, in the calling task if nothing is under way.

        With ``first`` it leaves before all that wait. A request that waits for others does so past
        ``until`` while the server answers those, to the end that ``until`` may have (see
        ``flow.patience``).
        """
        check(command)
        began = monotonic()
        if self._timer is None or self._looks_by < began:
            self._heard()
            self._watch(carrier, self._due)
        if until < began + LEAST:
            until = prolonged(until, began + LEAST)
        if first or self.is_busy:
            return await self._queue(carrier, command, until, first)
        self._caller = asyncio.current_task()
        try:
            self._bearer = trip = carrier.carry([command], until)
            replies = await trip
            self._heard()
        except Exception as error:
            left(error, max(began, self._woken))
            raise
        finally:
            self._caller = None
            self._go_on(carrier)
        if len(replies) != 1:
            raise carrier.no_reply()
        if isinstance(replies[0], Exception):
            raise replies[0]
        return replies[0]

    async def exchange_together(
        self, carrier: Carrier, commands: Sequence[tuple[Any, ...]], until: float
    ) -> list[Any]:
        """Send commands as the only trip of this courier, and return their replies."""
        for command in commands:
            check(command)
        self._heard()
        self._watch(carrier)
        began = monotonic()
        if until < began + LEAST:
            until = prolonged(until, began + LEAST)
        try:
            self._bearer = trip = carrier.carry(commands, until)
            replies = await trip
        except Exception as error:
            left(error, max(began, self._woken))
            raise
        finally:
            self._bearer = None
        if len(replies) != len(commands):
            raise carrier.no_reply()
        return replies

    def _queue(
        self, carrier: Carrier, command: tuple[Any, ...], until: float, first: bool
    ) -> asyncio.Future[Any]:
        """Have a command travel with others; the future reply."""
        now, reply = monotonic(), self._loop.create_future()
        request = Request(command, reply, until, now, first)
        self._waiting.add(request)
        if request.end < self._first_end:
            self._first_end = request.end
        if first:
            self._hurry(carrier, request, (until - now) / 2)  # time for another connection
        if not self.is_busy:
            self._go_on_if_idle(carrier)
        return reply

    def _hurry(self, carrier: Carrier, request: Request, seconds: float) -> None:
        """Look after so long whether a request that cannot wait was answered."""
        when = self._loop.time() + max(0.0, seconds)
        self._loop.call_at(when, self._look_at, carrier, request, when, context=Context())

    def _look_at(self, carrier: Carrier, request: Request, when: float) -> None:
        """End the trip under way if the server was silent for the whole time of a request.

        Its connection may be half open, while a new one would bring a reply.
        """
        if request.reply.done():
            return
        self._go_on_if_idle(carrier)
        if self.opening is not None and not request.beside:
            self._go_beside(self.opening, request)
        left = request.patience(self._answered) - monotonic()
        if left > 0:
            self._hurry(carrier, request, left)
        elif self._loop.time() > when + LATE:  # what came meanwhile is to be read first
            self._end_unheard(self.trip, self._answered)
        elif self.trip is not None:
            self.trip.end()

    def _end_unheard(self, trip: Trip | None, answered: float, turns: int = TURNS) -> None:
        """End a trip if nothing is heard on it while the event loop turns a few times more.

        Not after some time: where each step of a program takes long, that would never come.
        """
        if trip is None or self.trip is not trip or self._answered != answered:
            return
        if turns:
            again = partial(self._end_unheard, trip, answered, turns - 1)
            self._loop.call_soon(again, context=Context())
        else:
            trip.end()

    def _go_beside(self, opening: Callable[[Courier], Carrier], request: Request) -> None:
        """Send a request on another connection as well, while one that may hang is opened."""
        request.beside = True
        courier = self.beside(BESIDE)
        exchange = courier.exchange(
            opening(courier), request.command, request.patience(self._answered), first=True
        )
        work = partial(asyncio.Task, _tell_too(exchange, request), loop=self._loop)
        self._works.add(Context().run(work))

    def _heard(self) -> None:
        self._answered, self._quiet = monotonic(), 0

    def _watch(self, carrier: Carrier, due: float = math.inf) -> None:
        """Look after a pause, in place of a look that was ``due`` and has not come.

        An exception from outside may have lost that; or something blocks the event loop.
        """
        if self._timer is not None:
            self._timer.cancel()
        when = self._loop.time() + LOOK
        self._due = min(due, when)
        # In a context of its own: a timer would keep that of one caller for all.
        self._timer = self._loop.call_at(when, self._look, carrier, context=Context())
        self._looks_by = monotonic() + (1 + SILENT) * LOOK

    def _look(self, carrier: Carrier) -> None:
        now = monotonic()
        # After something has blocked the event loop, what came meanwhile is to be read first.
        was_blocked = self._loop.time() > self._due + LOOK
        self._skipped = was_blocked and not self._skipped
        if was_blocked:
            self._woken = now
        if not self._skipped:
            self._quiet += 1
            if self.trip is not None and max(self.trip.until, self._woken + LEAST) <= now:
                self.trip.end()
            if self._quiet >= SILENT or self._first_end <= now:
                self._drop_late(carrier)
            self._leave_stuck()
        self._timer, self._due = None, math.inf
        self._go_on_if_idle(carrier)
        if self.is_busy:
            self._watch(carrier)

    def _leave_stuck(self) -> None:
        """Give up the exchange of a caller that nobody will wake any more.

        Work in the background is carried on by another task (see ``world.works``). What asyncio
        has lost of a program's own task is the program's; but the others are to go on.
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

    def _drop_late(self, carrier: Carrier) -> None:
        now = monotonic()
        self._waiting.keep(lambda one: not one.reply.done() and self._is_in_time(one, now, carrier))
        self._first_end = self._waiting.first_end()

    def _is_in_time(self, request: Request, now: float, carrier: Carrier) -> bool:
        """Whether it is still of use; who waited for too long is told."""
        is_silent = self._quiet >= SILENT
        if now < request.end and not is_silent:
            return True
        answered = max(self._answered, self._woken)
        if now < (request.last(answered) if is_silent else request.end):
            return True
        request.tell(failures.unsent(carrier.no_reply()) if is_silent else self._unsent())
        return False

    def _unsent(self) -> Unsent:
        others = len(self._waiting)
        return Unsent(f"its request did not leave in time, as {others} of this event loop wait")

    def _go_on_if_idle(self, carrier: Carrier) -> None:
        if self._waiting and not self.is_busy:
            self._go_on(carrier)

    def _go_on(self, carrier: Carrier) -> None:
        """Let those travel who wait, if there are any."""
        self._bearer = None
        if self._waiting and not self._loop.is_closed():
            # No task factory of the program's may run it at once, inside the caller's own step.
            work = partial(asyncio.Task, self._travel(carrier), loop=self._loop)
            self._bearer = bearer = Context().run(work)
            self._works.add(bearer, partial(self._arrived, carrier, bearer))

    def _arrived(self, carrier: Carrier, task: asyncio.Task[None]) -> None:
        if task is self._bearer:  # it was cancelled, maybe before its first step
            self._go_on(carrier)

    async def _travel(self, carrier: Carrier) -> None:
        # Who began this may have been interrupted before it was known: then another goes.
        while self._waiting and self._bearer is self._works.current():
            load: list[Request] = []
            try:
                self._load(carrier, load)
                if load:
                    await self._deliver(carrier, load)
            finally:
                self._tell_rest(carrier, load)
            if not self._waiting:
                await asyncio.sleep(0)  # those who were served have their next request ready
        if self._bearer is self._works.current():
            self._bearer = None

    def _load(self, carrier: Carrier, load: list[Request]) -> None:
        now, waiting = monotonic(), self._waiting
        while len(load) < LOAD and (line := waiting.next()):
            if load and (load[0].alone or line[0].alone):
                break
            load.append(line.popleft())  # at once: an interrupt must not lose it
            if load[-1].reply.done() or not self._is_in_time(load[-1], now, carrier):
                del load[-1]

    async def _deliver(self, carrier: Carrier, load: list[Request]) -> None:
        """Tell a load its replies; what is not told in the end stays in it."""
        now = monotonic()
        try:
            replies = await carrier.carry([one.command for one in load], _until(load, now))
            self._heard()
        except Exception as error:
            if len(load) > 1 and failures.was_sent(error) and not failures.is_unknown(error):
                self._put_back(load, alone=True)  # it is the fault of one of them
                return
            replies = [failures.own_copy(error) for _ in load]
        except BaseException as error:
            if not failures.was_sent(error):
                self._put_back(load)
            raise
        began = max(now, self._woken)
        if len(replies) == len(load):  # else nobody knows which reply is whose
            for request, reply in zip(load, replies, strict=True):
                if isinstance(reply, Exception):
                    request.tell(left(reply, began))
                elif not request.reply.done():
                    request.reply.set_result(reply)
            load.clear()

    def _tell_rest(self, carrier: Carrier, load: list[Request]) -> None:
        if not self._loop.is_closed():
            for request in load:
                if not request.reply.done():  # most were told: to make an error takes its time
                    request.tell(carrier.no_reply())

    def _put_back(self, load: list[Request], alone: bool = False) -> None:
        for request in load:
            request.alone = request.alone or alone
        self._waiting.put_back(load)
        load.clear()


async def _tell_too(exchange: Coroutine[Any, Any, Any], request: Request) -> None:
    """Tell a reply; what fails is left to the first way."""
    with suppress(Exception):
        request.tell(await exchange)


def _until(load: list[Request], now: float) -> float:
    """How long a load is waited for: no longer than one of it that cannot wait has time."""
    hurried = [request.patience(now) for request in load if request.first]
    return min(hurried) if hurried else max([now + LEAST, *[one.last(now) for one in load]])

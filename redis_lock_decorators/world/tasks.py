"""The port of asyncio code: flows are awaited."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from redis_lock_decorators.flow.cohort import Cohort
from redis_lock_decorators.flow.listener import Listener
from redis_lock_decorators.flow.loop import Line
from redis_lock_decorators.flow.requests import ROUND_TRIP
from redis_lock_decorators.world import failures
from redis_lock_decorators.world.alarm import sleep
from redis_lock_decorators.world.carriers import ClientCarrier, PoolCarrier, carry_apart
from redis_lock_decorators.world.clients import (
    Facts,
    node_of,
    place_of,
    refuse_without_pipelines,
)
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.courier import Courier
from redis_lock_decorators.world.lines import find_nodes, task_line
from redis_lock_decorators.world.trips import Carrier
from redis_lock_decorators.world.waiters import TaskWaiter
from redis_lock_decorators.world.watched import TaskWatch
from redis_lock_decorators.world.works import LOOK, start, together, works

T = TypeVar("T")

#: What tells the courier for requests that cannot wait from that for nodes.
EXPRESS = object()
#: So often work is begun whose task is cancelled each time, as by one who cancels all tasks.
MOST_BEGUN = 50


class AsyncioPort:
    """An asyncio client as the flows see it, on the running event loop."""

    __slots__ = (
        "_carrier",
        "_courier",
        "_facts",
        "_new_line",
        "bell",
        "client",
        "contenders",
        "held",
        "keeper",
        "resends",
        "serials",
        "slotted",
        "transacts",
    )

    now = staticmethod(monotonic)
    random = staticmethod(random.random)
    is_unknown = staticmethod(failures.is_unknown)
    is_outcome = staticmethod(failures.is_outcome)
    was_sent = staticmethod(failures.was_sent)
    is_answer = staticmethod(failures.is_answer)
    lacks = staticmethod(failures.lacks)

    def __init__(
        self,
        client: Any,
        facts: Facts[Courier],
        carrier: Carrier,
        new_line: Callable[[Any, bytes], Awaitable[Line]] = task_line,
    ) -> None:
        self.client = client
        self.bell = facts.bell
        self.keeper = facts.bell.keeper
        self._facts = facts
        self.held = facts.held
        self.contenders = facts.contenders
        self.serials: Iterator[int] = facts.serials
        self.slotted = facts.slotted
        self.transacts = facts.transacts
        self.resends = carrier.resends
        self._courier = facts.lane
        self._carrier = carrier
        self._new_line = new_line

    def place(self) -> str:
        return place_of(self.client)

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    def send(self, *command: Any, until: float) -> Coroutine[Any, Any, Any]:
        courier = self._route(command) if self.slotted else self._courier
        return courier.exchange(self._carrier, command, until)

    def hasten(self, *command: Any, until: float) -> Coroutine[Any, Any, Any]:
        courier, carrier = self._route(command), self._carrier
        if courier.is_busy:
            courier = courier.beside(EXPRESS)
            if isinstance(carrier, PoolCarrier):
                carrier = pool_carrier(courier, self.client, self._facts)
        return courier.exchange(carrier, command, until)

    def _route(self, command: tuple[Any, ...]) -> Courier:
        courier = self._courier
        return courier.beside(node_of(self.client, command)) if self.slotted else courier

    async def send_together(self, *commands: tuple[Any, ...], until: float) -> list[Any]:
        if isinstance(self._carrier, PoolCarrier):
            return await carry_apart(self.client, self._facts.named, commands, until)
        refuse_without_pipelines(self.client)
        await self.locate(commands[0][3], until)
        node = self._facts.node(self.client, commands[0])
        replies = await ClientCarrier(self.client).carry(commands, until)
        if self._facts.node(self.client, commands[0]) != node:
            raise failures.moved(self.client)
        return replies

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        return await together(works)

    async def locate(self, key: bytes, until: float) -> None:
        if self.slotted and self._facts.node(self.client, ("", key)) is None:
            await find_nodes(self.client, until)

    def listener(self, key: bytes) -> Listener:
        return self._facts.listener(self, key)

    def hears(self, key: bytes) -> bool:
        return self._facts.hears(self.client, key)

    def waiter(self) -> TaskWaiter:
        return TaskWaiter()

    def cohort(self, key: bytes, ttl: int) -> Cohort:
        return self._facts.cohort(key, ttl)

    async def line(self, key: bytes) -> Line:
        return await self._new_line(self.client, key)

    async def distrust(self) -> None:
        # Whichever connection it was: that for urgent requests is another one.
        for carrier in {self._carrier, *self._courier.carriers()}:
            await carrier.distrust()

    async def shield(self, work: Callable[[], Awaitable[object]]) -> None:
        await finish(work)

    def ahead(self) -> AsyncioPort:
        """A port for what must not wait for its turn: renewals, and hearing whose turn it is."""
        return _PortAhead(self.client, self._facts, self._carrier, self._new_line)

    def close(self) -> None:
        """Close what is open for this port alone."""
        self._carrier.close()

    def watch(self) -> TaskWatch:
        return TaskWatch(self.client, self._facts)


class _PortAhead(AsyncioPort):
    """A port whose every request leaves with the next trip, before those that wait."""

    __slots__ = ()

    def send(self, *command: Any, until: float) -> Coroutine[Any, Any, Any]:
        courier = self._route(command)
        if isinstance(self._carrier, ClientCarrier) and courier.is_busy:
            courier = courier.beside(EXPRESS)  # nobody can end a trip by the client's own methods
        return courier.exchange(self._carrier, command, until, first=True)


def port_of(client: Any, facts: Facts[Courier]) -> AsyncioPort:
    """The port to an asyncio client, past its own methods where nobody has wrapped them."""
    if not facts.is_untouched(client):
        return AsyncioPort(client, facts, ClientCarrier(client))
    return AsyncioPort(client, facts, pool_carrier(facts.lane, client, facts))


def pool_carrier(courier: Courier, client: Any, facts: Facts[Courier]) -> PoolCarrier:
    """The way of a courier past the client's own methods."""
    carrier: PoolCarrier | None = courier.carrier
    if carrier is None or carrier.pool is not client.connection_pool:
        carrier = courier.carrier = PoolCarrier(courier, client.connection_pool, facts.named)
    return carrier


async def finish(work: Callable[[], Awaitable[object]]) -> None:
    """Do work though the caller is cancelled meanwhile, and the task that does it as well.

    An exception from outside, as signal handlers raise it, is the caller's, after the work.

    So it is done at the end of ``asyncio.run`` too, which waits for the caller. A cancelled caller
    waits for a round trip at most; then the work goes on without it.
    """
    cut: asyncio.CancelledError | None = None
    outside: BaseException | None = None
    end, task, began = math.inf, start(work()), 1
    while not task.done() or _is_interrupted(task, outside, began):
        if task.done():
            outside = outside or _failure(task)
            task, began = start(work()), began + 1
        left = end - monotonic()
        if left <= 0:
            break
        try:
            await asyncio.wait([task], timeout=min(LOOK, left))  # it may fail to tell
        except asyncio.CancelledError as error:
            end = min(end, monotonic() + ROUND_TRIP)
            cut = error
    if cut is not None:
        raise cut
    if outside is not None:
        raise outside


def _is_interrupted(
    task: asyncio.Future[object], outside: BaseException | None, began: int
) -> bool:
    """Whether work did not come to its end, and is worth another beginning."""
    if task.cancelled():
        return began < MOST_BEGUN
    failure = _failure(task)
    return failure is not None and outside is None and not failures.is_outcome(failure)


def _failure(task: asyncio.Future[object]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def unfinished() -> list[asyncio.Future[object]]:
    """What is still done in the background of the running event loop."""
    return works().tasks()

"""The port of blocking code: its methods never suspend, so a flow runs to its end in one go."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from redis_lock_decorators.errors import LockError
from redis_lock_decorators.flow.cohort import Cohort
from redis_lock_decorators.flow.listener import Listener
from redis_lock_decorators.flow.logs import log
from redis_lock_decorators.flow.loop import Line
from redis_lock_decorators.world import failures
from redis_lock_decorators.world.background import here
from redis_lock_decorators.world.calls import replies_of
from redis_lock_decorators.world.clients import (
    Facts,
    disconnect,
    place_of,
    refuse_without_pipelines,
)
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.lane import Lane
from redis_lock_decorators.world.waiters import ThreadWaiter
from redis_lock_decorators.world.watched import BlockingWatch

T = TypeVar("T")


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow whose port never suspends, and return its result."""
    try:
        flow.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    flow.close()
    raise RuntimeError("a blocking flow suspended: its port awaited something real")


def _refuse_here() -> None:
    """Refuse to wait in the background: who waits there keeps itself from being told.

    Raises:
        LockError: this is the background; a finalizer or a hook of a client runs there.
    """
    if here() is not None:
        raise LockError(
            "a lock is waited for on the thread that renews all locks and tells all waiters, so "
            "nothing would end the wait: in finalizers and hooks of clients try a lock once"
        )


async def _tidied(work: Callable[[], Awaitable[object]]) -> None:
    """Do work whose own errors nobody waits for."""
    try:
        await work()
    except Exception as error:
        if not failures.is_outcome(error):
            raise
        log.info("could not tidy up a lock: %s: %s", type(error).__name__, error)


class BlockingPort:
    """A blocking client as the flows see it."""

    __slots__ = (
        "_facts",
        "_lane",
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

    def __init__(self, client: Any, facts: Facts[Lane]) -> None:
        self.client = client
        self.bell = facts.bell
        self.keeper = facts.bell.keeper
        self._facts = facts
        self.held = facts.held
        self.contenders = facts.contenders
        self.serials: Iterator[int] = facts.serials
        self.slotted = facts.slotted
        self.transacts = facts.transacts
        self._lane = facts.lane if facts.is_untouched(client) else None
        self.resends = self._lane is None

    def place(self) -> str:
        return place_of(self.client)

    async def sleep(self, seconds: float) -> None:
        _refuse_here()
        time.sleep(seconds)

    async def send(self, *command: Any, until: float) -> Any:
        if self._lane is not None:
            return self._lane.exchange(self.client.connection_pool, command, until)
        (reply,) = replies_of(self.client, [command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def hasten(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)

    async def send_together(self, *commands: tuple[Any, ...], until: float) -> list[Any]:
        if self._lane is not None:
            return self._lane.exchange_all(self.client.connection_pool, commands, until)
        refuse_without_pipelines(self.client)
        node = self._facts.node(self.client, commands[0])
        replies = replies_of(self.client, commands)
        if self._facts.node(self.client, commands[0]) != node:
            raise failures.moved(self.client)
        return replies

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        return [await work for work in works]

    async def locate(self, key: bytes, until: float) -> None:
        """Blocking clients of clusters know their nodes from the start."""

    def listener(self, key: bytes) -> Listener:
        return self._facts.listener(self, key)

    def hears(self, key: bytes) -> bool:
        return self._facts.hears(self.client, key)

    def waiter(self) -> ThreadWaiter:
        _refuse_here()
        return ThreadWaiter(self.bell.begin)

    def cohort(self, key: bytes, ttl: int) -> Cohort:
        return self._facts.cohort(key, ttl)

    async def line(self, key: bytes) -> Line:
        raise TypeError("lines are heard on an event loop")

    async def distrust(self) -> None:
        if self._lane is not None:
            self._lane.drop()
            return
        disconnect(self.client)

    async def shield(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await _tidied(work)
        except GeneratorExit:  # the flow is thrown away, and may not begin to wait again
            raise
        except BaseException:
            await _tidied(work)  # it was interrupted from outside, at any line
            raise

    def watch(self) -> BlockingWatch:
        return BlockingWatch(self.client, self._facts)

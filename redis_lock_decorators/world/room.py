"""The background thread of blocking programs: an event loop, and ports on it to their clients."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators.flow.keeper import Keeper
from redis_lock_decorators.world.blocking import BlockingPort
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.courier import Carrier, Courier
from redis_lock_decorators.world.lines import thread_line
from redis_lock_decorators.world.relays import LineCarrier, ThreadCarrier
from redis_lock_decorators.world.tasks import AsyncioPort

log = logging.getLogger("redis_lock_decorators")

#: Clients that a thread keeps a connection to; of more, those it met first are connected anew.
MOST_PORTS = 64


class Alarm:
    """Calls a function of its event loop at the earliest of the times asked for."""

    __slots__ = ("_at", "_handle", "_ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = math.inf

    def set(self, when: float) -> None:
        """Ring by this time."""
        if when < self._at:
            if self._handle is not None:
                self._handle.cancel()
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(max(0.0, when - time.monotonic()), self._go)
            self._at = when

    def _go(self) -> None:
        self._handle, self._at = None, math.inf
        self._ring()


class Room(threading.Thread):
    """A thread with an event loop, from its first ring until there is nothing to ring for."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__(name="redis_lock_decorators", daemon=True)
        self._alarm = Alarm(keeper.tick)
        self._ports: OrderedDict[int, AsyncioPort] = OrderedDict()
        self._loop = asyncio.SelectorEventLoop()
        self._starting = threading.Lock()
        self._made = time.monotonic()

    def ring(self, when: float) -> bool:
        """Tick by this time, from any thread; False if the thread has ended."""
        if threading.current_thread() is self:
            self._alarm.set(when)
            return True
        return self.call(partial(self._alarm.set, when))

    def call(self, function: Callable[[], object]) -> bool:
        """Call a function on the event loop, from any thread; False if the thread has ended."""
        if self.ident is None:
            self._start()
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the event loop is closed
            return False
        return True

    def close(self) -> None:
        """Be no thread after all."""
        self._loop.close()

    def leave(self) -> None:
        """End the thread; from the thread itself."""
        self._loop.stop()

    def port(self, port: Any) -> AsyncioPort:
        """The port on this event loop to the client of a blocking port."""
        found = self._ports.get(id(port.client))
        if found is None:
            found = self._ports[id(port.client)] = beside(port)
            if len(self._ports) > MOST_PORTS:
                self._ports.popitem(last=False)[1].close()
        return found

    def run(self) -> None:
        """Be the thread."""
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._tidy())
            self._loop.close()

    def _start(self) -> None:
        """Start the thread, once, whoever rings and whatever interrupts them."""
        was_left = time.monotonic() > self._made + 1.0  # by who was interrupted at it
        try:
            if (self._starting.acquire(blocking=False) or was_left) and self.ident is None:
                self.start()
        except RuntimeError as error:
            if self.ident is None:  # too many threads, or the interpreter is going down
                log.warning("held locks are not renewed and no loss is told: %s", error)

    async def _tidy(self) -> None:
        works = asyncio.all_tasks() - {asyncio.current_task()}
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for port in self._ports.values():
            port.close()


def beside(port: BlockingPort) -> AsyncioPort:
    """A port on the running event loop to the client of a blocking port."""
    client = port.client
    facts = Facts(client, Courier(), port.bell)
    facts.serials = port.serials
    carrier: Carrier
    carrier = ThreadCarrier(client, facts) if port.resends else LineCarrier(client.connection_pool)
    return AsyncioPort(client, facts, carrier, thread_line)

"""The event loops that leases are kept on: a program's own, or one on a thread for threads."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from redis_lock_decorators.flow.keeper import Keeper
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.world.blocking import BlockingPort
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.courier import Carrier, Courier
from redis_lock_decorators.world.relays import LineCarrier, ThreadCarrier
from redis_lock_decorators.world.tasks import AsyncioPort, start

log = logging.getLogger("redis_lock_decorators")

#: The place of the one thread.
PRESENT = "present"
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


class LoopBell:
    """The running event loop."""

    now = staticmethod(time.monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)

    def __init__(self) -> None:
        self.phase = random.random()
        self.keeper = Keeper(self)
        self._alarm = Alarm(self.keeper.tick)

    def ring(self, when: float) -> None:
        if when < math.inf:
            self._alarm.set(when)

    def port(self, port: Port) -> Port:
        return port


class ThreadBell:
    """An event loop on the one background thread of a process, there while leases are kept.

    Attributes:
        rooms: the thread under ``PRESENT``, if there is one.
    """

    now = staticmethod(time.monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)

    def __init__(self) -> None:
        self.process = os.getpid()
        self.phase = random.random()
        self.keeper = Keeper(self)
        self.rooms: dict[str, Room] = {}

    def ring(self, when: float) -> None:
        if when == math.inf:
            # By the room itself. Who handed in a lease just now rang a room that leaves.
            self.rooms.pop(PRESENT).leave()
            if len(self.keeper):
                self.ring(self.now())
            return
        room = self.rooms.get(PRESENT) or self.rooms.setdefault(PRESENT, Room(self.keeper))
        while not room.ring(when):
            room = self.rooms.setdefault(PRESENT, Room(self.keeper))

    def port(self, port: Port) -> Port:
        return cast(Room, threading.current_thread()).port(port)


class Room(threading.Thread):
    """A thread with an event loop, from its first ring until there is nothing to ring for."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__(name="redis_lock_decorators", daemon=True)
        self._alarm = Alarm(keeper.tick)
        self._ports: OrderedDict[int, AsyncioPort] = OrderedDict()
        self._loop = asyncio.SelectorEventLoop()
        self._entered = threading.Lock()

    def ring(self, when: float) -> bool:
        """Tick by this time, from any thread; False if the thread has ended."""
        if threading.current_thread() is self:
            self._alarm.set(when)
            return True
        if self.ident is None:
            self._start()
        try:
            self._loop.call_soon_threadsafe(self._alarm.set, when)
        except RuntimeError:  # the event loop is closed
            return False
        return True

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
        if not self._entered.acquire(blocking=False):  # two rang at once and each started it
            return
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._tidy())
            self._loop.close()

    def _start(self) -> None:
        try:
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
    facts = Facts(client, Courier(), port.keeper)
    facts.serials = port.serials
    carrier: Carrier
    if port.resends:
        carrier = ThreadCarrier(client, facts.slotted)
    else:
        carrier = LineCarrier(client.connection_pool)
    return AsyncioPort(client, facts, carrier)


class _Keepers:
    """The keepers of this process."""

    def __init__(self) -> None:
        self.threads = ThreadBell()
        self.loops: dict[asyncio.AbstractEventLoop, Keeper] = {}
        self._inherited: list[ThreadBell] = []

    def renew(self) -> ThreadBell:
        """Begin anew in a forked child: of the parent's thread there is only a memory."""
        # Kept from the garbage collector, whose work on them would reach the parent's sockets.
        self._inherited.append(self.threads)
        self.threads = ThreadBell()
        return self.threads


_keepers = _Keepers()


def keeper_of_threads() -> Keeper:
    """The keeper of all threads of this process."""
    bell = _keepers.threads
    if bell.process != os.getpid():
        bell = _keepers.renew()
    return bell.keeper


def keeper_of_loop() -> Keeper:
    """The keeper of the running event loop."""
    loop, keepers = asyncio.get_running_loop(), _keepers.loops
    if loop not in keepers:
        for other in [other for other in keepers if other.is_closed()]:
            del keepers[other]
        keepers[loop] = LoopBell().keeper
    return keepers[loop]

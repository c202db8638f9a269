"""The event loops that leases are kept on: a program's own, or one on a thread for threads."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from redis_lock_decorators.flow import process
from redis_lock_decorators.flow.keeper import Keeper
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.world.blocking import BlockingPort
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.courier import Carrier, Courier
from redis_lock_decorators.world.lines import thread_line
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
    sleep = staticmethod(asyncio.sleep)
    alarm = Alarm

    def __init__(self) -> None:
        self.phase = random.random()
        self.keeper = Keeper(self)
        self.wanted: set[Any] = set()
        self._alarm = Alarm(self.keeper.tick)

    def ring(self, when: float) -> None:
        if when < math.inf:
            self._alarm.set(when)

    def call(self, function: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(function)

    def port(self, port: Port) -> Port:
        return port

    def rest(self) -> None:
        """The event loop is the program's own."""


class ThreadBell:
    """An event loop on the one background thread of a process, there while it is needed.

    Attributes:
        wanted: the listeners that somebody waits for.
        rooms: the thread under ``PRESENT``, if there is one.
    """

    now = staticmethod(time.monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)
    sleep = staticmethod(asyncio.sleep)
    alarm = Alarm

    def __init__(self) -> None:
        self.process = process.number
        self.phase = random.random()
        self.keeper = Keeper(self)
        self.wanted: set[Any] = set()
        self.rooms: dict[str, Room] = {}

    def ring(self, when: float) -> None:
        if when < math.inf:
            self._reach(lambda room: room.ring(when))
        else:
            self.rest()

    def call(self, function: Callable[[], object]) -> None:
        self._reach(lambda room: room.call(function))

    def port(self, port: Port) -> Port:
        return cast(Room, threading.current_thread()).port(port)

    def rest(self) -> None:
        """By the room itself: end it, if there is nothing to do."""
        if self.wanted or len(self.keeper) or not self.rooms:
            return
        self.rooms.pop(PRESENT).leave()
        self.keeper.mute()
        # Who came just now called a room that leaves.
        for listener in list(self.wanted):
            self.call(listener.open)
        if len(self.keeper):
            self.ring(self.now())

    def _reach(self, call: Callable[[Room], bool]) -> None:
        while not call(self._present()):
            pass

    def _present(self) -> Room:
        room = self.rooms.get(PRESENT)
        if room is None:
            new = Room(self.keeper)
            room = self.rooms.setdefault(PRESENT, new)
            if room is not new:
                new.close()
        return room


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
    if port.resends:
        carrier = ThreadCarrier(client, facts.slotted)
    else:
        carrier = LineCarrier(client.connection_pool)
    return AsyncioPort(client, facts, carrier, thread_line)


class _Bells:
    """The bells of this process."""

    def __init__(self) -> None:
        self.threads = ThreadBell()
        self.loops: dict[asyncio.AbstractEventLoop, LoopBell] = {}
        self._inherited: list[ThreadBell] = []

    def renew(self) -> ThreadBell:
        """Begin anew in a forked child: of the parent's thread there is only a memory."""
        # Kept from the garbage collector, whose work on them would reach the parent's sockets.
        self._inherited.append(self.threads)
        self.threads = ThreadBell()
        return self.threads


_bells = _Bells()


def bell_of_threads() -> ThreadBell:
    """The bell of all threads of this process."""
    bell = _bells.threads
    return bell if bell.process == process.number else _bells.renew()


def bell_of_loop() -> LoopBell:
    """The bell of the running event loop."""
    loop, bells = asyncio.get_running_loop(), _bells.loops
    if loop not in bells:
        for other in [other for other in bells if other.is_closed()]:
            del bells[other]
        bells[loop] = LoopBell()
    return bells[loop]

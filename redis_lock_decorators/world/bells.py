"""The event loops that leases are kept on: a program's own, or one on a thread for threads."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

from redis_lock_decorators.flow import process
from redis_lock_decorators.flow.keeper import Keeper
from redis_lock_decorators.flow.loop import Alarm
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.world import crew
from redis_lock_decorators.world.alarm import LoopAlarm, sleep
from redis_lock_decorators.world.background import (
    Background,
    here,
    refuse_threadless,
)
from redis_lock_decorators.world.by_client import ByClient
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.green import GreenRoom
from redis_lock_decorators.world.hubs import MOST_HUBS, are_threads_green, drop_first, hub
from redis_lock_decorators.world.room import Room
from redis_lock_decorators.world.tasks import AsyncioPort
from redis_lock_decorators.world.works import start, works

#: The place of the one thread.
PRESENT = "present"


class LoopBell:
    """The running event loop."""

    now = staticmethod(monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)
    sleep = staticmethod(sleep)
    alarm = LoopAlarm

    def __init__(self) -> None:
        self.phase = random.random()
        self.keeper = Keeper(self)
        self.wanted: set[Any] = set()
        self.clients: ByClient[Any] = ByClient()
        self._alarm = LoopAlarm(self.keeper.tick)

    def ring(self, when: float) -> None:
        if when < math.inf:
            self._alarm.set(when)

    def check(self) -> None:
        """The event loop is there."""

    def begin(self) -> None:
        """The event loop is the program's own."""

    def call(self, function: Callable[[], object]) -> None:
        works().call(function)

    def port(self, port: Port) -> Port:
        return cast(AsyncioPort, port).ahead()

    def rest(self) -> None:
        """The event loop is the program's own."""


class ThreadBell:
    """The background of all threads of a process: a place that is there while it is needed.

    Where threads are greenlets, each hub has one: greenlets of one cannot wait for another's.

    Attributes:
        wanted: the listeners that somebody waits for.
        clients: what is known of the clients that are used there.
        rooms: the place under ``PRESENT``, if there is one.
    """

    now = staticmethod(monotonic)
    random = staticmethod(random.random)

    def __init__(self) -> None:
        self.process = process.number
        self.phase = random.random()
        self.keeper = Keeper(self)
        self.wanted: set[Any] = set()
        self.clients: ByClient[Any] = ByClient()
        self.rooms: dict[str, Background] = {}
        self._last: Background | None = None
        self._has_threads = False

    def ring(self, when: float) -> None:
        crew.begin()
        if when < math.inf:
            self._reach(lambda room: room.ring(when))
        else:
            self.rest()

    def call(self, function: Callable[[], object]) -> None:
        self.check()
        self._reach(lambda room: room.call(function))

    def check(self) -> None:
        """Refuse leases that need a thread, and waiting, where Python allows none.

        Raises:
            ConfigurationError: this is an isolated subinterpreter.
        """
        if not self._has_threads:
            refuse_threadless()
            self._has_threads = True

    def begin(self) -> None:
        """Have a thread for what was asked for while none could be started."""
        room = self.rooms.get(PRESENT)
        if room is not None:
            room.begin()

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        return _here().start(work, ended)

    async def sleep(self, seconds: float) -> None:
        await _here().sleep(seconds)

    def alarm(self, ring: Callable[[], None]) -> Alarm:
        return _here().alarm(ring)

    def port(self, port: Port) -> Port:
        return cast(Port, _here().port(port))

    def rest(self) -> None:
        """By a place itself: end it, if there is nothing to do."""
        crew.begin()  # what waits for a thread keeps the place; what was said just now has none yet
        room, mine = self.rooms.get(PRESENT), here()
        if self.is_idle() and room is not None and mine is not None and mine.works_for(room):
            self.retire(room)
            room.leave()

    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background."""
        return not self.wanted and not len(self.keeper) and not crew.is_stuck()

    def present(self) -> Background | None:
        """The place, if there is one."""
        return self.rooms.get(PRESENT)

    def retire(self, place: Background) -> None:
        """By a place itself: send nothing more to it."""
        if self.rooms.get(PRESENT) is place:
            self.rooms.pop(PRESENT, None)

    def go_on(self) -> None:
        """By a place that ends, or begins: have done what one has left, or came just then."""
        self.keeper.mute()
        crew.begin()
        for listener in list(self.wanted):
            self.call(listener.open)
        if len(self.keeper):
            self.ring(self.now())

    def _reach(self, call: Callable[[Background], bool]) -> None:
        # In a forked child a copy of the parent's greenlets may come by.
        while self.process == process.number and not call(self._present()):
            pass

    def _present(self) -> Background:
        room = self.rooms.get(PRESENT)
        if room is not None and not room.is_fit() and here() is not room:
            self.retire(room)
            if room.dismiss():
                self.go_on()
            room = self.rooms.get(PRESENT)
        if room is None:
            kind = GreenRoom if are_threads_green() else Room
            new = kind(self, self._last)
            room = self.rooms.setdefault(PRESENT, new)
            if room is new:
                self._last = new
            else:
                new.dismiss()
        return room


def _here() -> Background:
    """The place that the current thread works for."""
    return cast(Background, here())


class _Bells:
    """The bells of this process."""

    def __init__(self) -> None:
        self.threads: dict[object, ThreadBell] = {}
        self.loops: dict[asyncio.AbstractEventLoop, LoopBell] = {}
        self._process = process.number
        self._inherited: list[dict[object, ThreadBell]] = []

    def of(self, number: object) -> ThreadBell:
        """The bell of a hub."""
        if self._process != process.number:
            self._renew()
        bell = self.threads.get(number)
        if bell is None:
            bell = self.threads.setdefault(number, ThreadBell())
            drop_first(self.threads, MOST_HUBS)
        return bell

    def _renew(self) -> None:
        """Begin anew in a forked child: of the parent's thread there is only a memory."""
        # Kept from the garbage collector, whose work on them would reach the parent's sockets.
        self._inherited.append(self.threads)
        self.threads = {}
        self._process = process.number


_bells = _Bells()


def forget_closed(found: dict[asyncio.AbstractEventLoop, Any]) -> None:
    """Forget what belongs to event loops that were closed; other threads may do so as well."""
    for loop in list(found):
        if loop.is_closed():
            found.pop(loop, None)


def bell_of_threads() -> ThreadBell:
    """The bell of all threads of this process, or of the running greenlet's hub."""
    return _bells.of(hub())


def bell_of_loop() -> LoopBell:
    """The bell of the running event loop."""
    loop, bells = asyncio.get_running_loop(), _bells.loops
    if loop not in bells:
        forget_closed(bells)
        bells[loop] = LoopBell()
    return bells[loop]

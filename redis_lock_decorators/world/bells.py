"""The event loops that leases are kept on: a program's own, or one on a thread for threads."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from redis_lock_decorators.flow import process
from redis_lock_decorators.flow.keeper import Keeper
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.world.room import Alarm, Room
from redis_lock_decorators.world.tasks import start

#: The place of the one thread.
PRESENT = "present"


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

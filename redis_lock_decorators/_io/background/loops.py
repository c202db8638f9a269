"""The event loops that leases are kept on: a program's own, or one on a thread for threads."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.background import Timer
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background import helper_threads
from redis_lock_decorators._io.background.greenlets import GreenletWorker
from redis_lock_decorators._io.background.hubs import MOST_HUBS, are_threads_green, drop_first, hub
from redis_lock_decorators._io.background.loop_thread import LoopThread
from redis_lock_decorators._io.background.supervised import start, works
from redis_lock_decorators._io.background.timers import LoopTimer, sleep
from redis_lock_decorators._io.background.worker import (
    BackgroundWorker,
    here,
    refuse_threadless,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import forget_closed
from redis_lock_decorators._io.per_client import PerClient

#: The place of the one thread.
PRESENT = "present"


class CallerLoop:
    """The running event loop."""

    now = staticmethod(monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)
    sleep = staticmethod(sleep)
    timer = LoopTimer

    def __init__(self) -> None:
        self.phase = random.random()
        self.renewer = Renewer(self)
        self.wanted: set[Any] = set()
        self.clients: PerClient[Any] = PerClient()
        self._timer = LoopTimer(self.renewer.tick)

    def wake_at(self, when: float) -> None:
        if when < math.inf:
            self._timer.set(when)

    def check(self) -> None:
        """The event loop is there."""

    def begin(self) -> None:
        """The event loop is the program's own."""

    def call(self, function: Callable[[], object]) -> None:
        works().call(function)

    def port(self, port: Any) -> Any:
        return cast(AsyncioPort, port).ahead()

    def rest(self) -> None:
        """The event loop is the program's own."""


class BackgroundLoop:
    """The background of all threads of a process: a place that is there while it is needed.

    Where threads are greenlets, each hub has one: greenlets of one cannot wait for another's.

    Attributes:
        wanted: the listeners that somebody waits for.
        clients: what is known of the clients that are used there.
        loop_threads: the place under ``PRESENT``, if there is one.
    """

    now = staticmethod(monotonic)
    random = staticmethod(random.random)

    def __init__(self) -> None:
        self.process = fork.number
        self.phase = random.random()
        self.renewer = Renewer(self)
        self.wanted: set[Any] = set()
        self.clients: PerClient[Any] = PerClient()
        self.loop_threads: dict[str, BackgroundWorker] = {}
        self._last: BackgroundWorker | None = None
        self._has_threads = False

    def wake_at(self, when: float) -> None:
        helper_threads.begin()
        if when < math.inf:
            self._reach(lambda loop_thread: loop_thread.wake_at(when))
        else:
            self.rest()

    def call(self, function: Callable[[], object]) -> None:
        self.check()
        self._reach(lambda loop_thread: loop_thread.call(function))

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
        loop_thread = self.loop_threads.get(PRESENT)
        if loop_thread is not None:
            loop_thread.begin()

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        return _here().start(work, ended)

    async def sleep(self, seconds: float) -> None:
        await _here().sleep(seconds)

    def timer(self, call: Callable[[], None]) -> Timer:
        return _here().timer(call)

    def port(self, port: Any) -> Any:
        return _here().port(port)

    def rest(self) -> None:
        """By a place itself: end it, if there is nothing to do."""
        # What waits for a thread keeps the worker; what was logged just now has none yet.
        helper_threads.begin()
        loop_thread, mine = self.loop_threads.get(PRESENT), here()
        if (
            self.is_idle()
            and loop_thread is not None
            and mine is not None
            and mine.works_for(loop_thread)
        ):
            self.retire(loop_thread)
            loop_thread.leave()

    def is_idle(self) -> bool:
        """Whether nothing is to be done in the background."""
        return not self.wanted and not len(self.renewer) and not helper_threads.is_stuck()

    def present(self) -> BackgroundWorker | None:
        """The place, if there is one."""
        return self.loop_threads.get(PRESENT)

    def retire(self, place: BackgroundWorker) -> None:
        """By a place itself: send nothing more to it."""
        if self.loop_threads.get(PRESENT) is place:
            self.loop_threads.pop(PRESENT, None)

    def go_on(self) -> None:
        """By a place that ends, or begins: have done what one has left, or came just then."""
        self.renewer.forget_wake_up()
        helper_threads.begin()
        for subscriber in list(self.wanted):
            self.call(subscriber.open)
        if len(self.renewer):
            self.wake_at(self.now())

    def _reach(self, call: Callable[[BackgroundWorker], bool]) -> None:
        # In a forked child a copy of the parent's greenlets may come by.
        while self.process == fork.number and not call(self._present()):
            pass

    def _present(self) -> BackgroundWorker:
        loop_thread = self.loop_threads.get(PRESENT)
        if loop_thread is not None and not loop_thread.is_fit() and here() is not loop_thread:
            self.retire(loop_thread)
            if loop_thread.dismiss():
                self.go_on()
            loop_thread = self.loop_threads.get(PRESENT)
        if loop_thread is None:
            kind = GreenletWorker if are_threads_green() else LoopThread
            new = kind(self, self._last)
            loop_thread = self.loop_threads.setdefault(PRESENT, new)
            if loop_thread is new:
                self._last = new
            else:
                new.dismiss()
        return loop_thread


def _here() -> BackgroundWorker:
    """The place that the current thread works for."""
    return cast(BackgroundWorker, here())


class _Loops:
    """The bells of this process."""

    def __init__(self) -> None:
        self.threads: dict[object, BackgroundLoop] = {}
        self.loops: dict[asyncio.AbstractEventLoop, CallerLoop] = {}
        self._process = fork.number
        self._inherited: list[dict[object, BackgroundLoop]] = []

    def of(self, number: object) -> BackgroundLoop:
        """The bell of a hub."""
        if self._process != fork.number:
            self._renew()
        lease_loop = self.threads.get(number)
        if lease_loop is None:
            lease_loop = self.threads.setdefault(number, BackgroundLoop())
            drop_first(self.threads, MOST_HUBS)
        return lease_loop

    def _renew(self) -> None:
        """Begin anew in a forked child: of the parent's thread there is only a memory."""
        # Kept from the garbage collector, whose work on them would reach the parent's sockets.
        self._inherited.append(self.threads)
        self.threads = {}
        self._process = fork.number


_loops = _Loops()


def background_loop() -> BackgroundLoop:
    """The bell of all threads of this process, or of the running greenlet's hub."""
    return _loops.of(hub())


def caller_loop() -> CallerLoop:
    """The bell of the running event loop."""
    loop, lease_loops = asyncio.get_running_loop(), _loops.loops
    if loop not in lease_loops:
        forget_closed(lease_loops)
        lease_loops[loop] = CallerLoop()
    return lease_loops[loop]

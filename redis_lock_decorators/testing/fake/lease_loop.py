"""The event loops on which leases of the double are renewed, and its subscribers run."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.background.timers import sleep
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.testing.fake.loop_time import LoopTime
from redis_lock_decorators.testing.fake.virtual_time import VirtualTime


class FakeTimer:
    """Calls a function at the earliest of the virtual times that it was set to."""

    def __init__(self, lease_loop: FakeLeaseLoop, call: Callable[[], None]) -> None:
        self._lease_loop, self._call = lease_loop, call
        self._at = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        if when < self._at:
            if self._handle is not None:
                self._handle.cancel()
            after = max(0.0, when - self._lease_loop.now())
            self._at = when
            loop = self._lease_loop.loop
            self._handle = loop.call_later(after, self._fire, context=Context())

    def _fire(self) -> None:
        self._at, self._handle = math.inf, None
        self._call()


class FakeLeaseLoop:
    """An event loop in virtual time, as the flows see it.

    Attributes:
        loop: the event loop.
        port: returns the port on this loop to the client of another port.
    """

    sleep = staticmethod(sleep)
    random = staticmethod(random.random)

    def __init__(
        self,
        time: VirtualTime,
        loop: asyncio.AbstractEventLoop,
        port: Callable[[Any], Any],
    ) -> None:
        self.loop, self.port = loop, port
        self._time = time
        self.loop_time = LoopTime(time, loop)
        self.phase = 0.0
        self.renewer = Renewer(self)
        self.wanted: set[Any] = set()
        self.clients: PerClient[Any] = PerClient()
        self._timer = FakeTimer(self, self.renewer.tick)
        self.start_error = ""

    def now(self) -> float:
        return self._time.now

    def wake_at(self, when: float) -> None:
        if when < math.inf:
            self._timer.set(when)

    def call(self, function: Callable[[], object]) -> None:
        if is_running_here(self.loop):
            self.loop.call_soon(function, context=Context())
        else:
            call_on(self.loop, function)

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> asyncio.Task[None]:
        task = Context().run(self.loop.create_task, work)
        task.add_done_callback(lambda task: _end(task, ended), context=Context())
        return task

    def timer(self, call: Callable[[], None]) -> FakeTimer:
        return FakeTimer(self, call)

    def is_current(self) -> bool:
        return is_running_here(self.loop)

    def check(self, claim: Claim | None = None) -> None:
        """Do nothing: the loop runs."""

    def refuse_unrenewed(self, claim: Claim) -> None:
        """Do nothing: the loop runs."""

    def begin(self) -> None:
        """Do nothing: the loop runs."""

    def stop_if_idle(self) -> None:
        """Do nothing: the loop runs until the double ends."""


def _end(task: asyncio.Task[None], ended: Callable[[], object] | None) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("background work on locks failed: %s", described(error))
    if ended is not None:
        ended()


class BackgroundThread:
    """The thread that renews the leases of threads, until the double ends."""

    def __init__(self, time: VirtualTime, port: Callable[[Any], Any]) -> None:
        self.lease_loop = FakeLeaseLoop(time, asyncio.SelectorEventLoop(), port)
        name = "redis_lock_decorators fake"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        Context().run(self._thread.start)

    def end(self) -> None:
        """End the thread."""
        call_on(self.lease_loop.loop, self.lease_loop.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self.lease_loop.loop
        try:
            loop.run_forever()
            loop.run_until_complete(_cancel_others())
        finally:
            loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

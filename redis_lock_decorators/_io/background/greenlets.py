"""The background of programs whose threads are greenlets: gevent or eventlet put them there.

No event loop of asyncio can run there: Python allows one to a system thread, and the program's
own may be it. Greenlets cost little, so each work has one, which waits in the client's blocking
methods as the program's own do. Works take turns by a baton: one runs at a time and gives it away
only while it waits, as on an event loop. Right for real threads as well, if more costly.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.wakeups import Gate
from redis_lock_decorators._io.background.worker import BackgroundWorker, Owner, Worker
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.greenlets import GreenletPort

#: What works in the background are called.
NAME = "redis_lock_decorators work"


class Forked(BaseException):
    """This work is a copy in a forked child: the parent's goes on."""


class Stage:
    """What the works of a process share.

    Attributes:
        baton: held by the one work that runs now.
        calls: functions to be called.
        alarms: when to ring.
        gate: opened when there is something new to do.
    """

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.calls: deque[Callable[[], object]] = deque()
        self.alarms: dict[GreenletTimer, float] = {}
        self.gate = Gate()


class GreenletTimer:
    """Rings at the earliest of the times asked for."""

    __slots__ = ("_stage", "wake_at")

    def __init__(self, stage: Stage, call: Callable[[], None]) -> None:
        self._stage = stage
        self.wake_at = call

    def set(self, when: float) -> None:
        """Ring by this time."""
        alarms = self._stage.alarms
        if when < alarms.get(self, math.inf):
            alarms[self] = when
            self._stage.gate.open()


class GreenletWorker(BackgroundWorker):
    """A greenlet that calls and rings, and starts others for what takes time."""

    def __init__(self, owner: Owner, before: BackgroundWorker | None = None) -> None:
        # Works of the one before go on, and set its alarms.
        self._stage: Stage = before._stage if isinstance(before, GreenletWorker) else Stage()
        self._is_leaving = False
        super().__init__(owner, before)

    def is_fit(self) -> bool:
        return True

    def works_for(self, other: BackgroundWorker) -> bool:
        return isinstance(other, GreenletWorker) and other._stage is self._stage

    def leave(self) -> None:
        self._is_leaving = True
        self._stage.gate.open()

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> object:
        return self.worker(work, ended)

    def worker(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> Worker | None:
        """Who does a work; None if no thread can be started."""
        worker = Worker(self, partial(self._do, work, ended), NAME)
        try:
            worker.start()
        except RuntimeError as error:
            work.close()
            log.warning("no thread for work on locks in the background: %s", error)
            if ended is not None:
                self._stage.calls.append(ended)
            return None
        return worker

    async def sleep(self, seconds: float) -> None:
        with self.aside():
            self._pause(seconds)

    def timer(self, call: Callable[[], None]) -> GreenletTimer:
        return GreenletTimer(self._stage, call)

    def port(self, port: BlockingPort) -> GreenletPort:
        return GreenletPort(port, self)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let other works go on meanwhile."""
        self._stage.baton.release()
        try:
            yield
        finally:
            self._stage.baton.acquire()
            if self._process != fork.number:
                raise Forked

    def _accept(self, function: Callable[[], object]) -> bool:
        if self._is_leaving or self.has_ended:
            return False
        self._stage.calls.append(function)
        self._stage.gate.open()
        return True

    def _work(self) -> None:
        while not self._is_leaving and self._process == fork.number:
            with self._stage.baton:
                self._catch_up()
            now = monotonic()
            first = min(list(self._stage.alarms.values()), default=math.inf)
            if first > now and not self._stage.calls:
                self._stage.gate.wait(first - now)

    def _dismantle(self) -> None:
        if self._owner.is_idle():  # alarms refer to who set them
            self._stage.alarms.clear()

    def _catch_up(self) -> None:
        """Call what is to be called, and ring what is due."""
        while self._stage.calls:
            self._safely(self._stage.calls.popleft())
        now, alarms = monotonic(), self._stage.alarms
        for timer in [timer for timer, when in list(alarms.items()) if when <= now]:
            del alarms[timer]
            self._safely(timer.wake_at)

    def _do(self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None) -> None:
        """Do a work, between others."""
        with self._stage.baton:
            try:
                run(work)
            except Forked:
                return
            except Exception as error:
                log.info("work on locks failed: %s: %s", type(error).__name__, error)
            finally:
                if ended is not None and self._process == fork.number:
                    self._safely(ended)

    def _safely(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            log.exception("work on locks in the background failed")

    def _pause(self, seconds: float) -> None:
        Gate().wait(seconds)  # time.sleep may stop all greenlets

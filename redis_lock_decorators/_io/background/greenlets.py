"""The background worker of programs whose threads are greenlets, of gevent or eventlet.

It cannot use an event loop of asyncio: Python allows one per native thread, and the program may run
its own there. Greenlets are cheap, so each task has one, and waits in the client's blocking methods
as the program's greenlets do. A lock makes one task run at a time; a task releases it only while it
waits, as on an event loop. This is correct for native threads too, but costs more.
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
from redis_lock_decorators._io.background.worker import BackgroundWorker, Owner, WorkerThread
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.greenlets import GreenletPort
from redis_lock_decorators._rules.redaction import described

#: The name of the threads of background tasks.
NAME = "redis_lock_decorators work"


class Forked(BaseException):
    """This task is a copy in a forked child: it continues in the parent."""


class SharedState:
    """What the worker and its tasks share.

    Attributes:
        run_lock: held by the one task that runs.
        calls: functions that the worker is to call.
        due: when each timer is to fire.
        gate: opened when there is a new call or an earlier timer.
    """

    def __init__(self) -> None:
        #: any thread
        self.calls: deque[Callable[[], object]] = deque()
        self.gate = Gate()
        #: any task, while it holds ``run_lock``
        self.run_lock = threading.Lock()
        self.due: dict[GreenletTimer, float] = {}


class GreenletTimer:
    """Calls a function at the earliest of the times it was set to."""

    __slots__ = ("_shared", "call")

    def __init__(self, shared: SharedState, call: Callable[[], None]) -> None:
        self._shared = shared
        self.call = call

    def set(self, when: float) -> None:
        """Call the function by this time."""
        due = self._shared.due
        if when < due.get(self, math.inf):
            due[self] = when
            self._shared.gate.open()


class GreenletWorker(BackgroundWorker):
    """A greenlet that makes calls and fires timers, and starts another one for each task."""

    def __init__(self, owner: Owner, previous: BackgroundWorker | None = None) -> None:
        # Tasks of the previous worker continue, and set its timers.
        self._shared: SharedState = (
            previous._shared if isinstance(previous, GreenletWorker) else SharedState()
        )
        self._is_stopping = False  #: any thread
        super().__init__(owner, previous)

    def is_fit(self) -> bool:
        return True

    def shares_tasks_with(self, other: BackgroundWorker) -> bool:
        return isinstance(other, GreenletWorker) and other._shared is self._shared

    def stop(self) -> None:
        self._is_stopping = True
        self._shared.gate.open()

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> object:
        return self.start_thread(work, ended)

    def start_thread(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None
    ) -> WorkerThread | None:
        """Run work on a new thread; None if no thread can be started."""
        thread = WorkerThread(self, partial(self._run_task, work, ended), NAME)
        try:
            thread.start()
        except RuntimeError as error:
            work.close()
            log.warning("cannot start a thread for background work on locks: %s", described(error))
            if ended is not None:
                self._shared.calls.append(ended)
            return None
        return thread

    async def sleep(self, seconds: float) -> None:
        with self.unlocked():
            self._pause(seconds)

    def timer(self, call: Callable[[], None]) -> GreenletTimer:
        return GreenletTimer(self._shared, call)

    def port(self, port: BlockingPort) -> GreenletPort:
        return GreenletPort(port, self)

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Let other tasks run while this one waits."""
        self._shared.run_lock.release()
        try:
            yield
        finally:
            self._shared.run_lock.acquire()
            if self._process != fork.process_id:
                raise Forked

    def _enqueue(self, function: Callable[[], object]) -> bool:
        if self._is_stopping or self.has_ended:
            return False
        self._shared.calls.append(function)
        self._shared.gate.open()
        return True

    def _work(self) -> None:
        while not self._is_stopping and self._process == fork.process_id:
            with self._shared.run_lock:
                self._make_calls()
            now = monotonic()
            first = min(list(self._shared.due.values()), default=math.inf)
            if first > now and not self._shared.calls:
                self._shared.gate.wait(first - now)

    def _clean_up(self) -> None:
        if self._owner.is_idle():  # timers refer to the objects that set them
            self._shared.due.clear()

    def _make_calls(self) -> None:
        """Make the enqueued calls, and those of timers that are due."""
        while self._shared.calls:
            self._safely(self._shared.calls.popleft())
        now, due = monotonic(), self._shared.due
        for timer in [timer for timer, when in list(due.items()) if when <= now]:
            del due[timer]
            self._safely(timer.call)

    def _run_task(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None
    ) -> None:
        """Run work while holding the lock, except where the work waits."""
        with self._shared.run_lock:
            try:
                run(work)
            except Forked:
                return
            except Exception as error:
                log.info("background work on locks failed: %s", described(error))
            finally:
                if ended is not None and self._process == fork.process_id:
                    self._safely(ended)

    def _safely(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            log.exception("background work on locks failed")

    def _pause(self, seconds: float) -> None:
        Gate().wait(seconds)  # time.sleep may stop all greenlets

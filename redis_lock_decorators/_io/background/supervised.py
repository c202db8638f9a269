"""Supervised background tasks of an event loop: they continue even if a wake-up is lost.

asyncio wakes a task by one callback. If a signal handler raises an exception at the entry of the
callback, the wake-up is lost and the task never continues. Then another task takes over its
coroutine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._io.background.supervised_task import SupervisedTask
from redis_lock_decorators._io.background.timers import LoopTimer
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import (
    LoopKey,
    call_on,
    forget_closed,
    is_running_here,
    running_loop,
)

#: Seconds between two checks for stopped tasks.
CHECK_INTERVAL = 0.25
#: How often a function is called that raises: a signal handler may have raised the exception.
MOST_CALLS = 3
#: Seconds until the event loop is asked to run the callbacks that are ready, to find stopped tasks.
SETTLE_TIME = 0.02
#: Iterations of the event loop in which it runs all callbacks that were ready.
SETTLE_TURNS = 2


class Call:
    """A function to call.

    Attributes:
        attempts: how often it may still be called.
    """

    __slots__ = ("attempts", "function")

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.attempts = MOST_CALLS


class BackgroundTasks:
    """The background tasks of one event loop.

    A check finds tasks whose awaited future is done. If they have made no step after all ready
    callbacks have run, their wake-up was lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        #: loop only
        self._loop = loop
        self._supervised: dict[asyncio.Future[Any], SupervisedTask] = {}
        self._by_driver: dict[object, asyncio.Future[Any]] = {}  # the tasks that were taken over
        self._calls: deque[Call] = deque()
        self._unlisted: set[asyncio.Future[object]] = set()
        self._gave_up = False
        self._process = fork.process_id
        self._timer = LoopTimer(self._check)

    def add(self, task: asyncio.Future[Any], ended: Callable[[], object] | None = None) -> None:
        """Supervise a task; ``ended`` is called after it, maybe twice."""
        self._supervised[task] = SupervisedTask(task, ended)
        self._timer.set(monotonic() + CHECK_INTERVAL)
        task.add_done_callback(self._end, context=Context())

    def call(self, function: Callable[[], object]) -> None:
        """Call a function soon, and again if an exception ends it; from any thread."""
        if not is_running_here(self._loop):
            call_on(self._loop, self.call, function)
            return
        self._calls.append(Call(function))
        self._timer.set(monotonic() + CHECK_INTERVAL)
        self._loop.call_soon(self._make_calls, context=Context())

    def add_unlisted(self, task: asyncio.Future[object]) -> None:
        """Let ``unlisted_ended`` wait for a task that the event loop does not list."""
        self._unlisted.add(task)
        task.add_done_callback(self.give_up, context=Context())

    def give_up(self, task: asyncio.Future[object]) -> None:
        """Wait no longer for an unlisted task; warn of the first that is not done."""
        self._unlisted.discard(task)
        if not task.done() and not self._gave_up:
            self._gave_up = True
            log.warning(
                "a release was interrupted, and its reply did not arrive within %g seconds: the "
                "event loop ends without it, and whether the lock was lost before is not known",
                OUTAGE,
            )

    async def unlisted_ended(self) -> None:
        """Wait for the unlisted tasks, for as long as an outage may last."""
        end = monotonic() + OUTAGE
        while self._unlisted and (left := end - monotonic()) > 0:
            await asyncio.wait(self._unlisted.copy(), timeout=min(CHECK_INTERVAL, left))
        for task in self._unlisted.copy():
            self.give_up(task)

    def tasks(self) -> list[asyncio.Future[Any]]:
        """The tasks that are not done."""
        return list(self._supervised)

    def current(self) -> object:
        """The original task of the running coroutine."""
        task = asyncio.current_task()
        return self._by_driver.get(task, task) if self._by_driver else task

    def supervises(self, task: asyncio.Future[Any]) -> bool:
        """Whether this is a background task, or the driver of one."""
        return self._by_driver.get(task, task) in self._supervised

    def _end(self, task: asyncio.Future[Any]) -> None:
        supervised = self._supervised.get(task)
        if supervised is not None:
            if supervised.ended is not None:
                supervised.ended()
            self._supervised.pop(task, None)
            for driver in [driver for driver, served in self._by_driver.items() if served is task]:
                del self._by_driver[driver]

    def _make_calls(self) -> None:
        while self._calls and self._process == fork.process_id:
            call = self._calls[0]
            call.attempts -= 1
            if call.attempts >= 0:
                call.function()
            # Last, so that a signal handler's exception loses no call. The function may have run
            # the event loop, which has made this call again and removed it.
            if self._calls and self._calls[0] is call:
                self._calls.popleft()

    def _check(self) -> None:
        stopped = {}
        for task, supervised in list(self._supervised.items()):
            supervised.forward_cancellation()
            at = supervised.stopped_at()
            if at is not None:
                stopped[task] = at
        if stopped:
            self._loop.call_later(SETTLE_TIME, self._settle, stopped, context=Context())
        if self._supervised or self._calls:
            self._timer.set(monotonic() + CHECK_INTERVAL)
        self._make_calls()

    def _settle(
        self, stopped: dict[asyncio.Future[Any], object], turns: int = SETTLE_TURNS
    ) -> None:
        """Let the event loop run what is ready, then resume the stopped tasks.

        Time alone proves nothing: uvloop runs timers before ready callbacks, and slow timers of the
        program may take all of it.
        """
        if turns:
            self._loop.call_soon(self._settle, stopped, turns - 1, context=Context())
        else:
            self._resume_stopped(stopped)

    def _resume_stopped(self, stopped: dict[asyncio.Future[Any], object]) -> None:
        """Resume the tasks that have made no step since the check that found them stopped."""
        for task, at in stopped.items():
            supervised = self._supervised.get(task)
            if supervised is None or supervised.stopped_at() is not at:
                continue
            if task.done():  # its done callback was lost
                self._end(task)
            elif supervised.driver.done():
                supervised.copy_outcome()
            else:
                log.debug("a background task of locks had stopped: resuming it")
                self._by_driver[supervised.take_over()] = task


_by_loop: dict[LoopKey, BackgroundTasks] = {}  #: any thread


def background_tasks() -> BackgroundTasks:
    """The background tasks of the running event loop."""
    key = running_loop()
    found = _by_loop.get(key)
    if found is None:
        _forget_closed()
        found = _by_loop[key] = BackgroundTasks(key[1])
    return found


def _forget_closed() -> None:
    """Drop the unfinished tasks of closed event loops."""
    for closed in forget_closed(_by_loop):
        for task in closed.tasks():
            # Do not warn: the program has closed the loop while the task was pending.
            task._log_destroy_pending = False  # type: ignore[attr-defined]

"""Work in the background of an event loop, looked after until it is over.

asyncio wakes a task once. If an exception from outside, as signal handlers raise it, comes as the
event loop is about to do so, that is lost, and the task never goes on. The work is then carried on
by another task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.timers import LoopTimer
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import forget_closed

#: Seconds between two looks whether work goes on.
LOOK = 0.25
#: So often a function is called that does not return: an exception from outside may have ended it.
MOST_CALLS = 3
#: Seconds in which all that was ready has had its turn, on any kind of event loop.
TURN = 0.02


class Work:
    """Work of a task, which others may wait for or cancel whoever carries it on.

    Attributes:
        task: who began it, and is done when it is over.
        driver: who takes its steps.
    """

    __slots__ = ("_context", "_passed", "driver", "ended", "task")

    def __init__(self, task: asyncio.Future[Any], ended: Callable[[], object] | None) -> None:
        self.task = self.driver = task
        self.ended = ended
        self._context = copy_context()  # the task was begun in this one
        self._passed = 0  # cancellations of the task that who carries it on was told

    def carry_on(self) -> object:
        """Have another task take the steps from where the driver stands; returns that."""
        former: Any = self.driver
        work = partial(asyncio.Task, former.get_coro(), loop=former.get_loop())
        context = former.get_context() if hasattr(former, "get_context") else self._context
        self.driver = driver = context.run(work)
        former._log_destroy_pending = False
        if former is self.task:
            self._passed = _cancellations(former)
        if former._must_cancel:
            driver.cancel()
        driver.add_done_callback(lambda _: self.settle(), context=Context())
        return driver

    def settle(self) -> None:
        """Have the task end as the one that carried it on."""
        task, driver = self.task, self.driver
        if task.done() or not driver.done():
            return
        # A task refuses to be told its result, as that is for its own steps, but takes none here.
        if driver.cancelled():
            asyncio.Future.cancel(task)
        elif (error := driver.exception()) is not None:
            asyncio.Future.set_exception(task, error)
        else:
            asyncio.Future.set_result(task, driver.result())

    def pass_cancellation(self) -> None:
        """Cancel who carries it on, if the task was cancelled since it was told."""
        if self.driver is self.task:
            return
        passed, self._passed = self._passed, _cancellations(self.task)
        if self._passed > passed:
            self.driver.cancel()

    def halt(self) -> object:
        """What its driver is to be woken from, as that is over; None if it waits for something."""
        return halt(self.driver)


class Call:
    """A function that is to be called.

    Attributes:
        left: how often it may yet be called.
    """

    __slots__ = ("function", "left")

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.left = MOST_CALLS


class Works:
    """The work in the background of one event loop.

    A look finds what stands still. If it still does when all that was ready then has had its turn,
    its wake-up was lost.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._works: dict[asyncio.Future[Any], Work] = {}
        self._begun: dict[object, asyncio.Future[Any]] = {}  # by who carries it on
        self._calls: deque[Call] = deque()
        self._timer = LoopTimer(self._look)
        self._halted: dict[asyncio.Future[Any], object] = {}

    def add(self, task: asyncio.Future[Any], ended: Callable[[], object] | None = None) -> None:
        """Look after a task; ``ended`` is called after it, maybe twice."""
        self._works[task] = Work(task, ended)
        self._timer.set(monotonic() + LOOK)
        task.add_done_callback(self._end, context=Context())

    def call(self, function: Callable[[], object]) -> None:
        """Call a function soon, and once more where an exception ends it."""
        self._calls.append(Call(function))
        self._timer.set(monotonic() + LOOK)
        self._loop.call_soon(self._catch_up, context=Context())

    def tasks(self) -> list[asyncio.Future[Any]]:
        """The tasks that are not over."""
        return list(self._works)

    def current(self) -> object:
        """The task that began what is running, whoever carries it on."""
        task = asyncio.current_task()
        return self._begun.get(task, task) if self._begun else task

    def looks_after(self, task: asyncio.Future[Any]) -> bool:
        """Whether a task does, or began, some of this work."""
        return self._begun.get(task, task) in self._works

    def _end(self, task: asyncio.Future[Any]) -> None:
        work = self._works.get(task)
        if work is not None:
            if work.ended is not None:
                work.ended()
            self._works.pop(task, None)
            for driver in [one for one, begun in self._begun.items() if begun is task]:
                del self._begun[driver]

    def _catch_up(self) -> None:
        while self._calls:
            call = self._calls[0]
            call.left -= 1
            if call.left >= 0:
                call.function()
            self._calls.popleft()  # last: an exception from outside must lose none

    def _look(self) -> None:
        halted = {}
        for task, work in list(self._works.items()):
            work.pass_cancellation()
            at = work.halt()
            if at is not None:
                halted[task] = at
        self._halted = halted
        if halted:
            self._loop.call_later(TURN, self._wake, context=Context())
        if self._works or self._calls:
            self._timer.set(monotonic() + LOOK)
        self._catch_up()

    def _wake(self) -> None:
        """Have go on what still stands where the look has found it."""
        halted, self._halted = self._halted, {}
        for task, at in halted.items():
            work = self._works.get(task)
            if work is None or work.halt() is not at:
                continue
            if task.done():  # it was not told
                self._end(task)
            elif work.driver.done():
                work.settle()
            else:
                log.debug("work on locks had come to a stop, and goes on")
                self._begun[work.carry_on()] = task


_found: dict[asyncio.AbstractEventLoop, Works] = {}


def works() -> Works:
    """The work in the background of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _found.get(loop)
    if found is None:
        _forget_closed()
        found = _found[loop] = Works(loop)
    return found


def start(
    work: Awaitable[object], ended: Callable[[], object] | None = None
) -> asyncio.Future[object]:
    """Do work in the background, whatever becomes of who began it.

    ``ended`` is called though it never took a step.
    """
    task = asyncio.ensure_future(work)
    works().add(task, ended)
    task.add_done_callback(_tell)
    return task


async def together(parts: list[Awaitable[Any]]) -> list[Any]:
    """The results of several parts of a work, done side by side."""
    if len(parts) == 1:
        return [await parts[0]]
    tasks = [asyncio.ensure_future(part) for part in parts]
    for task in tasks:
        works().add(task)
    try:
        await over(tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [task.result() for task in tasks]


async def over(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until tasks are done, also if one of them could not tell."""
    while waiting := [task for task in tasks if not task.done()]:
        await asyncio.wait(waiting, timeout=LOOK)


def halt(task: Any) -> object:
    """What a task is to be woken from, as that is over; None if it waits for something.

    It is another object whenever the task has taken a step.
    """
    if task.done():
        return task
    awaited = getattr(task, "_fut_waiter", None)
    if awaited is not None:
        return awaited if awaited.done() else None
    work = task.get_coro() if hasattr(task, "get_coro") else None
    if inspect.iscoroutine(work):
        return _pause(work)  # it has not begun, or lets others go first
    return None


def _cancellations(task: Any) -> int:
    """How often a task was cancelled; before Python 3.11 whether it is yet to be told so."""
    return int(task.cancelling() if hasattr(task, "cancelling") else task._must_cancel)


def _pause(work: Any) -> object:
    """The object that a coroutine is suspended at, if it is another one at each step; else None.

    That is a coroutine that has not begun, or a pause of asyncio. The iterator of an application's
    awaitable may make many steps: it must not be taken for a task that has stopped.
    """
    while (inner := getattr(work, "cr_await", None)) is not None:
        work = inner
    if inspect.iscoroutine(work):
        return work
    frame = work.gi_frame if inspect.isgenerator(work) else None
    module = type(work).__module__ if frame is None else frame.f_globals.get("__name__", "")
    return work if module.lstrip("_").partition(".")[0] == "asyncio" else None


def _forget_closed() -> None:
    """Let go what event loops left undone that were closed."""
    for left in forget_closed(_found):
        for task in left.tasks():
            # Its program closed the loop over it: to say so once more helps nobody.
            task._log_destroy_pending = False  # type: ignore[attr-defined]


def _tell(task: asyncio.Future[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("work on locks in the background failed: %s: %s", type(error).__name__, error)

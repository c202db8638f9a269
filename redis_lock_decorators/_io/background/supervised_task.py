"""A background task, and the step at which its coroutine is suspended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any


class SupervisedTask:
    """A task whose coroutine another task may have taken over.

    Attributes:
        task: the original task, which other tasks await or cancel; done when the coroutine is.
        driver: the task that runs the coroutine now.
        ended: called when the task is done.
    """

    __slots__ = ("_context", "_forwarded", "driver", "ended", "task")  #: loop only

    def __init__(self, task: asyncio.Future[Any], ended: Callable[[], object] | None) -> None:
        self.task = self.driver = task
        self.ended = ended
        self._context = copy_context()  # the context of the task
        self._forwarded = 0  # cancellations of the task that the driver has received

    def take_over(self) -> object:
        """Let a new task continue the coroutine; returns that task."""
        former: Any = self.driver
        new_task = partial(asyncio.Task, former.get_coro(), loop=former.get_loop())
        context = former.get_context() if hasattr(former, "get_context") else self._context
        self.driver = driver = context.run(new_task)
        former._log_destroy_pending = False
        if former is self.task:
            self._forwarded = _cancellations(former)
        if former._must_cancel:
            driver.cancel()
        driver.add_done_callback(lambda _: self.copy_outcome(), context=Context())
        return driver

    def copy_outcome(self) -> None:
        """Give the task the outcome of its driver."""
        task, driver = self.task, self.driver
        if task.done() or not driver.done():
            return
        # ``Task.set_result`` raises, as only the task itself may set it; it no longer runs.
        if driver.cancelled():
            asyncio.Future.cancel(task)
        elif (error := driver.exception()) is not None:
            asyncio.Future.set_exception(task, error)
        else:
            asyncio.Future.set_result(task, driver.result())

    def forward_cancellation(self) -> None:
        """Cancel the driver if the task was cancelled again."""
        if self.driver is self.task:
            return
        before, self._forwarded = self._forwarded, _cancellations(self.task)
        if self._forwarded > before:
            self.driver.cancel()

    def stopped_at(self) -> object:
        return stopped_at(self.driver)


def stopped_at(task: Any) -> object:
    """The object that a task should continue from; None if it waits for an unfinished future.

    After each step of the task it is another object. In the middle of a step it is None: code of
    the task may run the event loop inside that step, as with nest_asyncio.
    """
    if task.done():
        return task
    awaited = getattr(task, "_fut_waiter", None)
    if awaited is not None:
        return awaited if awaited.done() else None
    coroutine = _coroutine(task)
    if inspect.iscoroutine(coroutine) and not is_in_step(task):
        return _pause(coroutine)  # it has not started, or it yields once
    return None


def is_in_step(task: Any) -> bool:
    """Whether a step of the task is running, perhaps with the event loop inside it."""
    coroutine = _coroutine(task)
    return inspect.iscoroutine(coroutine) and coroutine.cr_running


def _coroutine(task: Any) -> object:
    return task.get_coro() if hasattr(task, "get_coro") else None


def _cancellations(task: Any) -> int:
    """How often a task was cancelled; before Python 3.11, whether a cancellation is pending."""
    return int(task.cancelling() if hasattr(task, "cancelling") else task._must_cancel)


def _pause(coroutine: Any) -> object:
    """The object at which a coroutine is suspended, if each step has another one; otherwise None.

    This is a coroutine that has not started, or a pause of asyncio. The iterator of a program's
    awaitable may make many steps: its task has not stopped.
    """
    at = coroutine
    while (inner := getattr(at, "cr_await", None)) is not None:
        at = inner
    if inspect.iscoroutine(at):
        return at
    frame = at.gi_frame if inspect.isgenerator(at) else None
    module = type(at).__module__ if frame is None else frame.f_globals.get("__name__", "")
    return at if module.lstrip("_").partition(".")[0] == "asyncio" else None

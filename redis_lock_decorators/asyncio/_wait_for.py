"""Cancel a task although ``asyncio.wait_for`` swallows that, as it may before Python 3.12.

It returns the result of what it waits for if that is done when its task is resumed, although the
task was cancelled in the meantime. Many clients, such as redis-py, send their requests by it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, MethodType
from typing import Any, NamedTuple

#: Iterations of the event loop for which a cancellation is postponed at most.
MOST_POSTPONED = 10
#: Iterations after a cancellation in which it may be swallowed: by a task, then by tasks that this
#: one cancels in turn.
LOOKS = 10
#: Cancellations that are swallowed before what the task waits for is cancelled first: it may always
#: end before the task is resumed.
MOST_SWALLOWED = 2
#: The attributes of suspended code that have its frame, and what it awaits.
SUSPENDED = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}
#: Types of Python's own that stand between suspended code and what it awaits.
BETWEEN = (
    "coroutine_wrapper",
    "async_generator_asend",
    "async_generator_athrow",
    "anext_awaitable",
)
_wait_for: Any = asyncio.wait_for
_task_group: Any = getattr(asyncio, "TaskGroup", None)


class Call(NamedTuple):
    """One suspended call of ``asyncio.wait_for``.

    Attributes:
        tasks: the task that made it, then the one that awaits that task, and so on.
        future: what it waits for.
        waiter: the future by which it is resumed.
        coroutine: its own.
    """

    tasks: tuple[asyncio.Task[Any], ...]
    future: asyncio.Future[Any]
    waiter: asyncio.Future[Any]
    coroutine: CoroutineType[Any, Any, Any]

    @property
    def has_returned(self) -> bool:
        """Whether it has ended, but not by a cancellation."""
        has_ended = self.coroutine.cr_frame is None
        return has_ended and self.future.done() and not self.future.cancelled()


class Awaited(NamedTuple):
    """What a task awaits, and would cancel if it was cancelled.

    Attributes:
        calls: the calls of ``asyncio.wait_for``, with their tasks.
        tasks: all tasks, with the first one.
        cancelled: those of them that were cancelled as the first one was, and that one.
    """

    calls: list[Call]
    tasks: set[asyncio.Task[Any]]
    cancelled: set[asyncio.Task[Any]]


class Step(NamedTuple):
    """A step on the way from a task to what it awaits.

    Attributes:
        one: a task, another future, or suspended code.
        tasks: as in ``Call``.
        is_cancelled: whether it was cancelled by what awaits it.
    """

    one: Any
    tasks: tuple[asyncio.Task[Any], ...] = ()
    is_cancelled: bool = True


def call_when_cancellable(
    task: asyncio.Task[Any], cancel: Callable[[], None], left: int = MOST_POSTPONED
) -> None:
    """Call ``cancel`` as soon as no call that has what it waits for would swallow that, or soon."""
    if left and any(call.future.done() for call in _own_calls(task)):
        asyncio.get_running_loop().call_soon(call_when_cancellable, task, cancel, left - 1)
    else:
        cancel()


def cancel_again(
    task: asyncio.Task[Any], message: str, is_wanted: Callable[[], bool], swallowed: int = 0
) -> None:
    """Cancel again what swallows the cancellation of a task, which must follow immediately.

    Callbacks run in the order of their registration. So this looks at all calls before the first
    task is resumed, and before the first step of each that one cancels in turn. Before their next
    steps it looks which calls have returned, although their tasks were cancelled.

    Args:
        task: the task.
        message: the message of the cancellation.
        is_wanted: whether it is to be cancelled still.
        swallowed: how often that has happened.
    """
    loop = asyncio.get_running_loop()

    def look(left: int = LOOKS) -> None:
        is_first = left == LOOKS  # it is not cancelled yet
        if task.done() or not (is_first or is_wanted()):
            return
        awaited = awaited_by(task)
        reached = {one for one in awaited.cancelled if not (is_first or _is_pending(one))}
        loop.call_soon(check, [call for call in awaited.calls if call.tasks[0] not in reached])
        if left > 1 and awaited.tasks - reached:
            loop.call_soon(look, left - 1)

    def check(calls: list[Call]) -> None:
        returned = [call for call in calls if call.has_returned]
        cancelled = awaited_by(task).cancelled if returned else set()
        for call in returned:
            swallower = next((one for one in call.tasks if not one.done()), None)
            if swallower in cancelled and not _is_pending(swallower):
                call_when_cancellable(swallower, partial(repeat, swallower))

    def repeat(swallower: asyncio.Task[Any]) -> None:
        if swallower.done() or not is_wanted():
            return
        if sys.version_info >= (3, 11):
            swallower.uncancel()
        cancel_again(swallower, message, is_wanted, swallowed + 1)
        swallower.cancel(message)
        if swallowed >= MOST_SWALLOWED:  # else ``wait_for`` does it, and not a second time
            for call in _own_calls(swallower):
                call.future.cancel(message)

    look()


def _own_calls(task: asyncio.Task[Any]) -> list[Call]:
    """The calls of a task, and of the tasks that it awaits directly."""
    return [call for call in awaited_by(task).calls if task in call.tasks]


def _is_pending(task: asyncio.Task[Any]) -> bool:
    """Whether a cancellation has yet to reach the code of a task: it does in the next step."""
    waiter = getattr(task, "_fut_waiter", None)
    return getattr(task, "_must_cancel", False) or (waiter is not None and waiter.cancelled())


def awaited_by(task: asyncio.Task[Any]) -> Awaited:
    """Find the calls in which a task is suspended, and those of the tasks that it would cancel."""
    found, seen = Awaited([], set(), set()), set[int]()
    left = [Step(task)]
    while left:
        step = left.pop()
        one, tasks, is_cancelled = step
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, asyncio.Task):
            found.tasks.add(one)
            if is_cancelled:
                found.cancelled.add(one)
            for inner in (getattr(one, "_fut_waiter", None), one.get_coro()):
                left.append(Step(inner, (one, *tasks), is_cancelled))
        elif type(one) in SUSPENDED:
            left += _awaited(step, found.calls)
        elif type(one).__name__ in BETWEEN:
            left += [step._replace(one=it) for it in gc.get_referents(one) if _is_suspended(it)]
        else:  # a future of ``asyncio.gather``, which is cancelled whatever becomes of its tasks
            was_asked = getattr(one, "_cancel_requested", False)
            left += [Step(child, (), was_asked) for child in getattr(one, "_children", ())]
    return found


def _awaited(step: Step, calls: list[Call]) -> list[Step]:
    """What suspended code awaits, or would cancel; adds it to ``calls`` if it is ``wait_for``.

    A call of ``wait_for`` is cancelled whatever becomes of the task that it waits for.
    """
    frame, awaited = (getattr(step.one, name) for name in SUSPENDED[type(step.one)])
    if frame is None:
        return []
    if frame.f_code is _wait_for.__code__:
        future, waiter = (frame.f_locals.get(name) for name in ("fut", "waiter"))
        if isinstance(future, asyncio.Future):
            # If it awaits a coroutine, it has cancelled the future, and will not swallow anything.
            has_cancelled = isinstance(awaited, CoroutineType)
            if isinstance(waiter, asyncio.Future) and not has_cancelled:
                calls.append(Call(step.tasks, future, waiter, step.one))
            return [Step(future, (), has_cancelled)]
    return [step._replace(one=awaited), *_children(step.one, frame)]


def _children(suspended: Any, frame: FrameType) -> list[Step]:
    """The tasks of each ``TaskGroup`` inside whose block, or in whose exit, code is suspended."""
    if _task_group is None:
        return []
    methods = [one for one in gc.get_referents(suspended) if isinstance(one, MethodType)]
    groups: list[Any] = [one.__self__ for one in methods if one.__func__ is _task_group.__aexit__]
    if frame.f_code is _task_group.__aexit__.__code__:
        groups.append(frame.f_locals["self"])
    return [Step(child, (), group._aborting) for group in groups for child in list(group._tasks)]


def _is_suspended(other: object) -> bool:
    return type(other) in SUSPENDED or type(other).__name__ in BETWEEN

"""Cancel a task although that may be swallowed, as it may before Python 3.13.

``asyncio.wait_for`` of Python 3.10 and 3.11 returns the result of what it waits for if that is done
when its task is resumed, although the task was cancelled in the meantime. Many clients send their
requests by it. A ``TaskGroup`` of Python 3.11 and 3.12 that ends by errors raises them in place of
a cancellation. Two cancellations within one iteration of the event loop are one: such a group, or a
time-out of ``async_timeout`` on Python 3.10, takes it for its own.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any, NamedTuple

#: Iterations of the event loop for which a cancellation is postponed at most.
MOST_POSTPONED = 10
#: Iterations after a cancellation in which it may be swallowed: by a task, then by tasks that this
#: one cancels in turn, and so on.
LOOKS = 40
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
_end_of_group: Any = getattr(_task_group, "__aexit__", None)


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
        groups: the instances of ``TaskGroup`` whose ends they wait for.
    """

    calls: list[Call]
    tasks: set[asyncio.Task[Any]]
    cancelled: set[asyncio.Task[Any]]
    groups: set[Any]


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
    """Call ``cancel`` as soon as nothing would swallow that immediately, or soon.

    That are calls that have what they wait for, and other cancellations that are under way.
    """
    is_busy = any(call.future.done() for call in _own_calls(task))
    is_busy = is_busy or any(_is_pending(one) for one in awaited_by([task]).cancelled)
    if left and is_busy:
        asyncio.get_running_loop().call_soon(call_when_cancellable, task, cancel, left - 1)
    else:
        cancel()


class RepeatedCancellation:
    """A cancellation of tasks that is repeated wherever it is swallowed.

    Callbacks run in the order of their registration. So this looks at all calls before the first
    task is resumed, and before the first step of each that one cancels in turn. Before their next
    steps it looks which calls have returned, although their tasks were cancelled. The tasks of a
    ``TaskGroup`` are cancelled when its block ends, so that is watched for.
    """

    __slots__ = ("_is_wanted", "_message", "_swallowed")

    def __init__(self, message: str, is_wanted: Callable[[], bool]) -> None:
        """``is_wanted`` tells whether the tasks are to be cancelled still."""
        self._message, self._is_wanted = message, is_wanted
        self._swallowed = Counter[asyncio.Task[Any]]()

    def follow(self, tasks: Sequence[asyncio.Task[Any]], left: int = LOOKS) -> None:
        """Repeat the cancellation of these tasks, which must follow immediately."""
        is_first = left == LOOKS  # they are not cancelled yet
        if not (is_first or self._is_wanted()):
            return
        loop, awaited = asyncio.get_running_loop(), awaited_by(tasks)
        for group in awaited.groups | _groups_of(awaited.tasks):
            _before_abort(group, partial(self._follow_group, group))
            if is_first:
                self._follow_end(group)
        if not is_first and any(map(_is_cancelled_twice, awaited.cancelled)):
            for one in tasks:  # after the next step, which may take both cancellations for its own
                loop.call_soon(call_when_cancellable, one, partial(self._repeat, one))
        reached = {one for one in awaited.cancelled if not (is_first or _is_pending(one))}
        calls = [call for call in awaited.calls if call.tasks[0] not in reached]
        loop.call_soon(self._check, tasks, calls)
        if left > 1 and awaited.tasks - reached:
            loop.call_soon(self.follow, tasks, left - 1)

    def _follow_group(self, group: Any) -> None:
        if self._is_wanted():
            self.follow([one for one in group._tasks if not one.done()])

    def _follow_end(self, group: Any) -> None:
        """Repeat the cancellation if the group ends by errors: they replace it."""
        loop, parent = asyncio.get_running_loop(), group._parent_task

        def ended() -> None:
            if group._errors is None and not _is_pending(parent):
                call_when_cancellable(parent, partial(self._repeat, parent))

        def one_ended(task: asyncio.Task[Any]) -> None:
            if not group._tasks:
                loop.call_soon(ended)  # after the step of its parent

        left = [task for task in group._tasks if not task.done()]
        for task in left:
            task.add_done_callback(one_ended)
        if not left:
            loop.call_soon(loop.call_soon, ended)

    def _check(self, tasks: Sequence[asyncio.Task[Any]], calls: list[Call]) -> None:
        returned = [call for call in calls if call.has_returned]
        cancelled = awaited_by(tasks).cancelled if returned else set()
        for call in returned:
            swallower = next((one for one in call.tasks if not one.done()), None)
            if swallower in cancelled and not _is_pending(swallower):
                call_when_cancellable(swallower, partial(self._repeat, swallower))

    def _repeat(self, swallower: asyncio.Task[Any]) -> None:
        if swallower.done() or not self._is_wanted():
            return
        if sys.version_info >= (3, 11):
            swallower.uncancel()
        self.follow([swallower])
        swallower.cancel(self._message)
        self._swallowed[swallower] += 1
        # Not at first, as ``wait_for`` cancels what it waits for by itself, and not a second time.
        if self._swallowed[swallower] > MOST_SWALLOWED:
            for call in _own_calls(swallower):
                call.future.cancel(self._message)


def _own_calls(task: asyncio.Task[Any]) -> list[Call]:
    """The calls of a task, and of the tasks that it awaits directly."""
    return [call for call in awaited_by([task]).calls if task in call.tasks]


def _is_pending(task: asyncio.Task[Any]) -> bool:
    """Whether a cancellation has yet to reach the code of a task: it does in the next step."""
    waiter = getattr(task, "_fut_waiter", None)
    return getattr(task, "_must_cancel", False) or (waiter is not None and waiter.cancelled())


def _is_cancelled_twice(task: asyncio.Task[Any]) -> bool:
    """Whether a task was cancelled once more before the first cancellation reached its code."""
    waiter = getattr(task, "_fut_waiter", None)
    return getattr(task, "_must_cancel", False) and waiter is not None and waiter.cancelled()


def awaited_by(tasks: Sequence[asyncio.Task[Any]]) -> Awaited:
    """Find the calls in which tasks are suspended, and those of the tasks that they would cancel.

    Not those of a ``TaskGroup``.
    """
    found, seen = Awaited([], set(), set(), set()), set[int]()
    left = [Step(task) for task in tasks if not task.done()]
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
            left += _awaited(step, found)
        elif type(one).__name__ in BETWEEN:
            left += [step._replace(one=it) for it in gc.get_referents(one) if _is_suspended(it)]
        else:  # a future of ``asyncio.gather``, which is cancelled whatever becomes of its tasks
            was_asked = getattr(one, "_cancel_requested", False)
            left += [Step(child, (), was_asked) for child in getattr(one, "_children", ())]
    return found


def _awaited(step: Step, found: Awaited) -> list[Step]:
    """What suspended code awaits, or would cancel; adds it to what is found if it is Python's.

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
            is_waiting = isinstance(waiter, asyncio.Future)
            if is_waiting and not has_cancelled:
                found.calls.append(Call(step.tasks, future, waiter, step.one))
            if is_waiting or has_cancelled:  # else it awaits the future itself, without a timeout
                return [Step(future, (), has_cancelled)]
    elif _end_of_group is not None and frame.f_code is _end_of_group.__code__:
        found.groups.add(frame.f_locals["self"])
    return [step._replace(one=awaited)]


def _groups_of(tasks: set[asyncio.Task[Any]]) -> set[Any]:
    """The instances of ``TaskGroup`` that these tasks have entered, and that have tasks."""
    if _task_group is None:
        return set()
    every = [getattr(one, "_callbacks", None) or () for one in asyncio.all_tasks()]
    callbacks = [callback for pairs in every for callback, _ in pairs]
    methods = [one for one in callbacks if isinstance(one, MethodType)]
    groups = [one.__self__ for one in methods if isinstance(one.__self__, _task_group)]
    return {group for group in groups if group._parent_task in tasks}


def _before_abort(group: Any, function: Callable[[], None]) -> None:
    """Call a function just before a ``TaskGroup`` cancels its tasks for the first time."""

    def abort() -> None:
        vars(group).pop("_abort", None)
        try:
            function()
        finally:
            group._abort()

    vars(group).setdefault("_abort", abort)


def _is_suspended(other: object) -> bool:
    return type(other) in SUSPENDED or type(other).__name__ in BETWEEN

"""Cancel a task although that may be swallowed, as it may before Python 3.13.

``asyncio.wait_for`` of Python 3.10 and 3.11 returns the result of what it waits for if that is done
when its task is resumed, although the task was cancelled in the meantime. Many clients send their
requests by it. A ``TaskGroup`` of Python 3.11 and 3.12 that ends by errors raises them in place of
a cancellation. Two cancellations within one iteration of the event loop are one: such a group, or a
time-out of ``async_timeout`` on Python 3.10, takes it for its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.asyncio._awaited import Awaited, Call, awaited_by

P = ParamSpec("P")
R = TypeVar("R")

#: Iterations of the event loop for which a cancellation is postponed at most.
MOST_POSTPONED = 10
#: Iterations after a cancellation in which it may be swallowed: by a task, then by tasks that this
#: one cancels in turn, and so on.
LOOKS = 40
#: Cancellations that are swallowed before what the task waits for is cancelled first: it may always
#: end before the task is resumed.
MOST_SWALLOWED = 2
#: Seconds between two checks whether a group has ended whose tasks have.
END_CHECK = 0.02


def safely(inspect: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """Inspect what a task awaits: whatever the program's objects do, the task is cancelled."""
    try:
        return inspect(*args, **kwargs)
    except Exception as error:
        log.warning("a loss cancels a task, which may swallow that: %s", described(error))
        return None


def call_when_cancellable(
    task: asyncio.Task[Any], cancel: Callable[[], None], left: int = MOST_POSTPONED
) -> None:
    """Call ``cancel`` as soon as nothing would swallow that immediately, or soon.

    These are calls that have what they wait for, and other cancellations that are under way.
    """
    if left and safely(_would_swallow, task):
        asyncio.get_running_loop().call_soon(call_when_cancellable, task, cancel, left - 1)
    else:
        cancel()


def _would_swallow(task: asyncio.Task[Any]) -> bool:
    awaited = awaited_by([task])
    return any(call.future.done() for call in awaited.calls if task in call.tasks) or any(
        map(_is_pending, awaited.cancelled)
    )


class RepeatedCancellation:
    """A cancellation of tasks that is repeated wherever it is swallowed.

    Callbacks run in the order of their registration. So this looks at all calls before the first
    task is resumed, and before the first step of each that one cancels in turn. Before their next
    steps it looks which calls have returned, although their tasks were cancelled. The tasks of a
    ``TaskGroup`` are cancelled when its block ends, so that is watched for.
    """

    __slots__ = ("_is_wanted", "_message", "_reached", "_swallowed")

    def __init__(
        self,
        message: str,
        is_wanted: Callable[[], bool],
        reached: Callable[[Awaited], object],
    ) -> None:
        """``is_wanted`` tells whether the tasks are to be cancelled still.

        ``reached`` is called with what else is cancelled, such as the tasks of groups, before that.
        """
        self._message, self._is_wanted, self._reached = message, is_wanted, reached
        self._swallowed = Counter[asyncio.Task[Any]]()

    def follow(self, tasks: Sequence[asyncio.Task[Any]], left: int = LOOKS) -> None:
        """Repeat the cancellation of these tasks, which must follow immediately."""
        is_first = left == LOOKS  # they are not cancelled yet
        if not (is_first or self._is_wanted()):
            return
        loop, awaited = asyncio.get_running_loop(), awaited_by(tasks)
        for group in awaited.groups | awaited.entered:
            _before_abort(group, self)
            if is_first:
                self._follow_end(group)
        if not is_first and any(map(_is_cancelled_twice, awaited.cancelled)):
            for one in tasks:  # after the next step, which may take both cancellations for its own
                loop.call_soon(self._repeat, one)
        reached = {one for one in awaited.cancelled if not (is_first or _is_pending(one))}
        calls = [call for call in awaited.calls if call.tasks[0] not in reached]
        loop.call_soon(self._check, tasks, calls)
        if left > 1 and awaited.tasks - reached:
            loop.call_soon(self.follow, tasks, left - 1)

    def _follow_group(self, group: Any) -> None:
        if self._is_wanted():
            tasks = [one for one in group._tasks if not one.done()]
            self._reached(awaited_by(tasks))
            self.follow(tasks)

    def _follow_end(self, group: Any) -> None:
        """Repeat the cancellation if the group ends by errors: they replace it."""
        loop, parent = asyncio.get_running_loop(), group._parent_task

        def ended() -> None:
            if group._errors is not None and not parent.done() and self._is_wanted():
                loop.call_later(END_CHECK, ended)  # its block may take long to clean up
            elif group._errors is None and not _is_pending(parent):
                self._repeat(parent)

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
                self._repeat(swallower)

    def _repeat(self, swallower: asyncio.Task[Any]) -> None:
        call_when_cancellable(swallower, partial(self._cancel_again, swallower))

    def _cancel_again(self, swallower: asyncio.Task[Any]) -> None:
        if swallower.done() or not self._is_wanted():
            return
        if sys.version_info >= (3, 11):
            swallower.uncancel()
        safely(self._look_again, swallower)
        safely(self.follow, [swallower])
        swallower.cancel(self._message)
        self._swallowed[swallower] += 1
        # Not at first, as ``wait_for`` cancels what it waits for by itself, and not a second time.
        if self._swallowed[swallower] > MOST_SWALLOWED:
            for call in _own_calls(swallower):
                call.future.cancel(self._message)

    def _look_again(self, swallower: asyncio.Task[Any]) -> None:
        self._reached(awaited_by([swallower]))


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


def _before_abort(group: Any, cancellation: RepeatedCancellation) -> None:
    """Follow a ``TaskGroup`` just before it cancels its tasks for the first time."""
    known = getattr(vars(group).get("_abort"), "followers", None)
    if known is not None:  # that of another block, which may have been left since, or the same
        known[cancellation] = None
        return
    followers = {cancellation: None}

    def abort() -> None:
        vars(group).pop("_abort", None)
        try:
            for one in followers:
                one._follow_group(group)
        finally:
            group._abort()

    abort.followers = followers  # type: ignore[attr-defined]
    vars(group).setdefault("_abort", abort)

"""Cancel a task although ``asyncio.wait_for`` swallows that, as it may before Python 3.12.

It returns the result of what it waits for if that is done when its task is resumed, although the
task was cancelled in the meantime. Many clients, such as redis-py, send their requests by it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
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


class Waiting(NamedTuple):
    """One suspended call of ``asyncio.wait_for``.

    Attributes:
        tasks: the task that made it, then the one that awaits that task, and so on.
        future: what it waits for.
        waiter: the future by which it is resumed.
    """

    tasks: tuple[asyncio.Task[Any], ...]
    future: asyncio.Future[Any]
    waiter: asyncio.Future[Any]

    @property
    def swallows(self) -> bool:
        """Whether its task was cancelled, and this would be swallowed now."""
        return self.future.done() and self.waiter.cancelled()


def is_ending_wait(task: asyncio.Task[Any]) -> bool:
    """Whether a cancellation would be swallowed, as a call has what it waits for."""
    return any(waiting.future.done() for waiting in waits_of(task))


def cancel_again(
    task: asyncio.Task[Any], message: str, is_wanted: Callable[[], bool], swallowed: int = 0
) -> None:
    """Cancel again what swallows the cancellation of a task, which must follow immediately.

    Callbacks run in the order of their registration. So this looks at the task after all others
    that might end its wait, and just before the task is resumed.

    Args:
        task: the task.
        message: the message of the cancellation.
        is_wanted: whether it is to be cancelled still.
        swallowed: how often that has happened.
    """
    loop = asyncio.get_running_loop()

    def look(left: int = LOOKS) -> None:
        if task.done() or not is_wanted():
            return
        for waiting in waits_of(task):
            if waiting.swallows:
                loop.call_soon(repeat, waiting.tasks)
        if left > 1:
            loop.call_soon(look, left - 1)

    def repeat(tasks: tuple[asyncio.Task[Any], ...], left: int = MOST_POSTPONED) -> None:
        swallower = next((one for one in tasks if not one.done()), None)
        if swallower is None or not is_wanted():
            return
        if left and is_ending_wait(swallower):
            loop.call_soon(repeat, tasks, left - 1)
            return
        if sys.version_info >= (3, 11):
            swallower.uncancel()
        cancel_again(swallower, message, is_wanted, swallowed + 1)
        swallower.cancel(message)
        if swallowed >= MOST_SWALLOWED:  # else ``wait_for`` does it, and not a second time
            for waiting in waits_of(swallower):
                waiting.future.cancel(message)

    loop.call_soon(look)


def waits_of(task: asyncio.Task[Any]) -> list[Waiting]:
    """The calls in which a task is suspended, and those of the tasks that it would cancel."""
    found: list[Waiting] = []
    seen: set[int] = set()
    left: list[tuple[tuple[asyncio.Task[Any], ...], Any]] = [((), task)]
    while left:
        tasks, one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, asyncio.Task):
            tasks = (one, *tasks)
            left += [(tasks, getattr(one, "_fut_waiter", None)), (tasks, one.get_coro())]
        elif type(one) in SUSPENDED:
            left += _awaited(one, tasks, found)
        elif type(one).__name__ in BETWEEN:
            left += [(tasks, other) for other in gc.get_referents(one) if _is_suspended(other)]
        else:  # a future of ``asyncio.gather``, which is cancelled whatever becomes of its tasks
            left += [((), child) for child in getattr(one, "_children", ())]
    return found


def _awaited(
    suspended: Any, tasks: tuple[asyncio.Task[Any], ...], found: list[Waiting]
) -> list[tuple[tuple[asyncio.Task[Any], ...], Any]]:
    """What suspended code awaits, or would cancel; adds it to ``found`` if it is ``wait_for``.

    A call of ``wait_for`` or a ``TaskGroup`` is cancelled whatever becomes of the tasks in it.
    """
    frame, awaited = (getattr(suspended, name) for name in SUSPENDED[type(suspended)])
    if frame is None:
        return []
    if frame.f_code is _wait_for.__code__:
        future, waiter = (frame.f_locals.get(name) for name in ("fut", "waiter"))
        if isinstance(future, asyncio.Future):
            # If it awaits a coroutine, it has cancelled the future, and will not swallow anything.
            if isinstance(waiter, asyncio.Future) and not isinstance(awaited, CoroutineType):
                found.append(Waiting(tasks, future, waiter))
            return [((), future)]
    elif _task_group is not None and frame.f_code is _task_group.__aexit__.__code__:
        return [((), child) for child in list(frame.f_locals["self"]._tasks)]
    return [(tasks, awaited)]


def _is_suspended(other: object) -> bool:
    return type(other) in SUSPENDED or type(other).__name__ in BETWEEN

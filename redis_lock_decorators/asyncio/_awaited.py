"""What a task awaits, down to the calls of Python's own code that may swallow a cancellation.

What is looked at may be an object of the program. So its class is that which ``type`` returns:
``isinstance`` asks a proxy for another one, which may fail, or run the program's code.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, MethodType
from typing import Any, NamedTuple

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


async def _nothing() -> AsyncIterator[None]:
    yield


_wait_for: Any = asyncio.wait_for
_task_group: Any = getattr(asyncio, "TaskGroup", None)
_end_of_group: Any = getattr(_task_group, "__aexit__", None)
#: The end of the block of an ``asynccontextmanager``.
_end_of_generator: Any = type(asynccontextmanager(_nothing)()).__aexit__


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
        entered: those in whose blocks they are.
        handled: the exceptions that the code of the first task handles; before Python 3.11 that of
            all tasks.
    """

    calls: list[Call]
    tasks: set[asyncio.Task[Any]]
    cancelled: set[asyncio.Task[Any]]
    groups: set[Any]
    entered: set[Any]
    handled: list[BaseException]


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


def awaited_by(tasks: Sequence[asyncio.Task[Any]]) -> Awaited:
    """Find the calls in which tasks are suspended, and those of the tasks that they would cancel.

    Not those of a ``TaskGroup``.
    """
    found, seen = Awaited([], set(), set(), set(), set(), []), set[int]()
    left = [Step(task) for task in tasks if not task.done()]
    while left:
        step = left.pop()
        one, tasks, is_cancelled = step
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if _is_a(one, asyncio.Task):
            found.tasks.add(one)
            if is_cancelled:
                found.cancelled.add(one)
            for inner in (getattr(one, "_fut_waiter", None), one.get_coro()):
                left.append(Step(inner, (one, *tasks), is_cancelled))
        elif type(one) in SUSPENDED:
            left += _awaited(step, found)
        elif type(one).__name__ in BETWEEN:
            left += [step._replace(one=it) for it in gc.get_referents(one) if _is_suspended(it)]
        elif _is_a(one, asyncio.Future):
            # That of ``asyncio.gather`` is cancelled whatever becomes of its tasks.
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
    if len(step.tasks) == 1 or sys.version_info < (3, 11):
        found.handled.extend(_handled(step.one, frame))
    if frame.f_code is _wait_for.__code__:
        future, waiter = (frame.f_locals.get(name) for name in ("fut", "waiter"))
        if _is_a(future, asyncio.Future):
            # If it awaits a coroutine, it has cancelled the future, and will not swallow anything.
            has_cancelled = type(awaited) is CoroutineType
            is_waiting = _is_a(waiter, asyncio.Future)
            if is_waiting and not has_cancelled:
                found.calls.append(Call(step.tasks, future, waiter, step.one))
            if is_waiting or has_cancelled:  # else it awaits the future itself, without a timeout
                return [Step(future, (), has_cancelled)]
    elif _end_of_group is not None and frame.f_code is _end_of_group.__code__:
        found.groups.add(frame.f_locals["self"])
    elif _end_of_group is not None:
        found.entered.update(_groups_entered(step.one))
    return [step._replace(one=awaited)]


def _groups_entered(code: object) -> set[Any]:
    """The instances of ``TaskGroup`` in whose blocks suspended code is, also of exit stacks.

    ``async with`` keeps the method that it calls at its end, and an exit stack those of others.
    """
    found, seen = set(), set[int]()
    left = _methods(gc.get_referents(code))
    while left:
        method = left.pop()
        owner: Any = method.__self__
        if method.__func__ is _end_of_group:
            found.add(owner)
        elif id(owner) in seen:  # a stack may contain itself
            continue
        elif method.__func__ is AsyncExitStack.__aexit__:
            left += _methods(exit_ for _, exit_ in owner._exit_callbacks)
        elif method.__func__ is _end_of_generator:
            left += _methods(gc.get_referents(owner.gen))
        seen.add(id(owner))
    return found


def _methods(objects: Iterable[Any]) -> list[MethodType]:
    return [one for one in objects if type(one) is MethodType]


def _handled(code: object, frame: FrameType) -> list[BaseException]:
    """The exceptions that suspended code handles: it refers to them, not just by its variables."""
    referents = [one for one in gc.get_referents(code) if _is_a(one, BaseException)]
    if not referents:
        return []
    # Before Python 3.11 the frame is an object of its own, which has the variables.
    values = frame.f_locals.values() if sys.version_info >= (3, 11) else ()
    kept = Counter(map(id, values))
    return [one for one in referents if sum(one is it for it in referents) > kept[id(one)]]


def _is_a(one: object, kind: type) -> bool:
    return issubclass(type(one), kind)


def _is_suspended(other: object) -> bool:
    return type(other) in SUSPENDED or type(other).__name__ in BETWEEN

"""The cancellation of a task whose lease is lost; the end of its block takes it back."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterable, Sequence
from functools import partial
from opcode import opmap
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.background.supervised_task import is_in_step
from redis_lock_decorators._io.background.timers import LoopTimer
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.interruptions import NO_LOOP, is_from_python
from redis_lock_decorators._rules.marks import ALSO, marked
from redis_lock_decorators.asyncio._awaited import Awaited, awaited_by
from redis_lock_decorators.asyncio._repeated_cancellation import (
    RepeatedCancellation,
    call_when_cancellable,
    safely,
)

#: The message of the cancellation by a loss.
LOST = "the lease of a lock was lost"
#: The attribute of a cancellation that a block has not taken for that by its loss.
OTHER = "is_other"
#: Seconds between two checks whether a task has ended the step inside which the event loop runs.
STEP_CHECK = 0.02
#: Whether ``asyncio.wait_for`` (before 3.12) or ``TaskGroup`` may swallow a cancellation.
SWALLOWS = sys.version_info < (3, 13)
#: The instruction of a ``raise`` statement.
RAISE = opmap["RAISE_VARARGS"]
#: A task in the form of ``Claim.owner``: weak, so that a lock does not keep its task alive.
TaskRef = ref["asyncio.Task[object]"]


#: any thread: by task, the blocks whose losses have cancelled it, itself or as one that is awaited
_cancelled_blocks: WeakKeyDictionary[asyncio.Task[object], WeakSet[BlockTask]] = WeakKeyDictionary()


class BlockTask:
    """The task that is in a block.

    Attributes:
        is_due: the task is to be cancelled, as its lease is lost.
        _is_cancelled: ``task.cancel()`` was called.
        _cancels: ``task.cancelling()`` on entering the block.
        _earlier_cancels: the same just before that call, unless another cancellation was under way
            then. It counts those too that the block has handled, as of a ``TaskGroup`` that failed.
        _groups: the instances of ``TaskGroup`` for whose ends the task waited at that call, and
            whose own cancellations of it were yet to come.
        _handled: the other cancellations that the task was handling at that call. Before Python
            3.11 all errors that it was, if it awaited another task.
        _replaced: how often a ``TaskGroup`` of Python 3.13 has put a cancellation of its own, which
            has no message, in the place of that call.
    """

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_earlier_cancels",
        "_groups",
        "_handled",
        "_is_cancelled",
        "_replaced",
        "_task",
        "is_due",
    )

    def __init__(self, task: TaskRef) -> None:
        self._task = task
        self.is_due = self._is_cancelled = False
        self._cancels = self._replaced = 0
        self._groups: list[Any] = []
        self._handled: list[BaseException] = []
        if sys.version_info >= (3, 11) and (found := task()) is not None:
            self._cancels = found.cancelling()
        self._earlier_cancels = self._cancels

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended, so that it cannot be cancelled."""
        task = self._task()
        return task is None or task.done()

    def cancel(self) -> None:
        """Cancel the task once, unless it has ended or is the running one.

        If any task runs now, cancel from the background: the running task may have been started
        eagerly, in a step of the task to be cancelled. Python before 3.13 would end that step by
        the cancellation even if it is taken back in time. For the same reason a task that runs the
        event loop inside a step, as with nest_asyncio, is cancelled after the step. Can be called
        again if interrupted.
        """
        if not self._is_cancelled and self._found() is not None:
            self.is_due = True
            if running() is None:
                self._cancel()
            else:
                background_tasks().call(self._cancel)

    def _found(self) -> asyncio.Task[object] | None:
        """Return the task, unless it has ended or is the running one."""
        task = self._task()
        return None if task is None or task.done() or self._task == running() else task

    def _cancel(self, is_cancellable: bool = not SWALLOWS) -> None:
        task = self._found()
        if not self.is_due or self._is_cancelled or task is None:
            return
        if is_in_step(task):
            LoopTimer(self._cancel).set(monotonic() + STEP_CHECK)
            return
        if not is_cancellable:
            call_when_cancellable(task, partial(self._cancel, True))
            return
        safely(self._look_around, task)
        self._is_cancelled = task.cancel(LOST) is not False

    def _look_around(self, task: asyncio.Task[object]) -> None:
        """Note and prepare what decides what becomes of the cancellation that follows."""
        if SWALLOWS:
            repeated = RepeatedCancellation(LOST, lambda: self._is_cancelled, self._mark)
            repeated.follow([task])
        awaited = awaited_by([task])
        if sys.version_info >= (3, 11):
            is_being_cancelled = _is_being_cancelled(task)
            if not is_being_cancelled:
                # What came since another loss may still be under way, though it is counted.
                own = [block for block in _blocks_cancelling(task) if block._task() is task]
                earlier = [block._earlier_cancels for block in own]
                self._earlier_cancels = min(earlier, default=task.cancelling())
            self._cancels = min(self._cancels, task.cancelling())  # some may be taken back since
            self._handled = _other_cancellations(awaited.handled)
            groups = [group for group in awaited.groups if group._parent_task is task]
            self._groups = [
                group
                for group in groups
                if is_being_cancelled or not group._parent_cancel_requested
            ]
            if not SWALLOWS:
                for group in awaited.groups | awaited.entered:
                    if group._parent_task is task:
                        self._follow_end(group)
        self._mark(awaited)

    def _mark(self, awaited: Awaited) -> None:
        """Note that the loss cancels these tasks."""
        for task in awaited.tasks:
            _cancelled_blocks.setdefault(task, WeakSet()).add(self)
        if sys.version_info < (3, 11) and len(awaited.tasks) > 1:
            self._handled += awaited.handled

    def _follow_end(self, group: Any) -> None:
        def ended(_: object) -> None:
            if not group._tasks and group._errors:
                self._replaced += 1

        for task in group._tasks:
            task.add_done_callback(ended)

    def uncancel(self, error: object) -> bool:
        """Take the cancellation back; return whether ``error`` is it, or is caused by it.

        If other code has cancelled the task too, ``error`` counts as that cancellation; so it does
        if the loss of another block has: the task may have to leave that one, too. A
        GeneratorExit is caused by it if the block is in an async generator: the cancelled task,
        which consumes the generator, closes it.
        """
        task = self._task() if self._is_cancelled else None
        self.is_due = self._is_cancelled = False
        if task is None:
            return False
        others = bool(_blocks_cancelling(task))
        is_closing = isinstance(error, GeneratorExit) and self._task == running()
        if sys.version_info >= (3, 11):
            cancels = task.uncancel() - sum(map(_is_counted, self._groups))
            handled, self._groups, self._handled = [error, *self._handled], [], []
            # Those that were taken back since, as by ``asyncio.timeout``, or are ours in disguise.
            settled = self._earlier_cancels - cancels + self._replaced
            ours = cancels <= self._cancels or (
                cancels <= self._earlier_cancels and len(_other_cancellations(handled)) <= settled
            )
            if isinstance(error, asyncio.CancelledError) and not (ours or others):
                marked(error, OTHER)  # it may have come together with that by the loss
        else:
            ours = is_closing or is_from_loss(error, self._handled)
            self._handled = []
        return ours and not others and (is_closing or isinstance(error, asyncio.CancelledError))


if sys.version_info >= (3, 11):

    def _is_being_cancelled(task: asyncio.Task[object]) -> bool:
        """Whether a cancellation of a task has not reached its code yet."""
        waited: Any = task
        seen: set[int] = set()  # tasks may wait for each other
        while waited is not None and id(waited) not in seen:
            seen.add(id(waited))
            is_requested = getattr(waited, "_must_cancel", False) or waited.cancelled()
            if is_requested or getattr(waited, "_cancel_requested", False):
                return True
            if waited is not task and issubclass(type(waited), asyncio.Task):
                own = sum(block._task() is waited for block in _blocks_cancelling(waited))
                if waited.cancelling() > own:
                    return True
            waited = getattr(waited, "_fut_waiter", None)
        return False

    def _is_counted(group: Any) -> bool:
        """Whether a group has cancelled its task, which waited for its end, as a task failed.

        Before Python 3.13 ``task.cancelling()`` counts that for good.
        """
        return SWALLOWS and bool(group._parent_cancel_requested)

    def _other_cancellations(errors: Iterable[object]) -> list[BaseException]:
        """The other cancellations among errors, and those that were handled when these came.

        Not one that a ``TaskGroup`` or a time-out has replaced by its own error.
        """
        replaces = (BaseExceptionGroup, TimeoutError)  # noqa: F821  # since 3.11
        found: dict[int, BaseException] = {}
        left, seen = list(errors), set[int]()
        while left:
            error = left.pop()
            if not isinstance(error, BaseException) or isinstance(error, replaces):
                continue
            if id(error) not in seen:
                seen.add(id(error))
                is_cancellation = isinstance(error, asyncio.CancelledError)
                if is_cancellation and (error.args != (LOST,) or hasattr(error, OTHER)):
                    found[id(error)] = error
                left += [error.__context__, getattr(error, ALSO, None)]
        return list(found.values())


def _blocks_cancelling(task: asyncio.Task[object]) -> list[BlockTask]:
    """The blocks whose losses have cancelled a task, and which were not left since."""
    return [block for block in _cancelled_blocks.get(task, ()) if block._is_cancelled]


def is_from_loss(error: object, handled: Sequence[BaseException] = ()) -> bool:
    """Whether an error is the cancellation by a loss, or was raised because of it.

    Before Python 3.11 a cancellation loses its message where it passes through an awaited task, and
    its context, too, if the code that awaits it handles another error: ``handled``. A cancellation
    that arrives while the first is being handled comes from other code. One that the handler itself
    raises does not.
    """
    while isinstance(error, BaseException):
        if isinstance(error, asyncio.CancelledError) and error.args == (LOST,):
            return True
        is_nameless = type(error) is asyncio.CancelledError and not error.args
        if is_nameless and any(error.__context__ is one for one in handled):
            return True
        before = error.__context__
        if isinstance(error, asyncio.CancelledError):
            handlers = _frames(error) & _frames(before)
            if handlers and not _is_raised_by(error, handlers):
                return False
        error = before
    return False


def _is_raised_by(error: BaseException, frames: set[object]) -> bool:
    """Whether a ``raise`` statement of one of these frames has raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame not in frames:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == RAISE


def _frames(error: BaseException | None) -> set[object]:
    """Return the frames of an error's traceback."""
    steps = traceback.walk_tb(None if error is None else error.__traceback__)
    return {frame for frame, _ in steps}


def running() -> TaskRef | None:
    """Return the running task in the form of ``Claim.owner``; None outside tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError as error:
        if not is_from_python(error, NO_LOOP):
            raise
        return None
    return None if task is None else ref(task)

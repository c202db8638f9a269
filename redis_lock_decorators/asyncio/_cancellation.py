"""The task in a block: a loss cancels it, and the block's end takes that cancellation back."""

from __future__ import annotations

import asyncio
import sys
import traceback
from weakref import ref

from redis_lock_decorators._io.background.supervised import works
from redis_lock_decorators._rules.interruptions import NO_LOOP, is_from_python

#: What the cancellation by a loss says.
LOST = "the lease of a lock was lost"
#: A task, as claims name their owner: a task that nobody refers to is not kept alive by its lock.
TaskRef = ref["asyncio.Task[object]"]


class BlockTask:
    """The task that entered a block, until the block is left.

    Attributes:
        is_due: it is to be cancelled.
        _is_cancelled: ``cancel`` was called on it.
    """

    __slots__ = ("_cancels", "_is_cancelled", "_task", "is_due")

    def __init__(self, task: TaskRef) -> None:
        self._task = task
        self.is_due = self._is_cancelled = False
        self._cancels = 0
        if sys.version_info >= (3, 11) and (found := task()) is not None:
            self._cancels = found.cancelling()

    def cancel(self) -> None:
        """Cancel the task, once, unless it is over or runs this; called again if it is cut short.

        While a task runs, a moment later: the holder may stand further up, where it began that
        task at once. Then it is in a step of its own, which Python before 3.13 ends by a
        cancellation though that was taken back meanwhile.
        """
        if not self._is_cancelled and self._found() is not None:
            self.is_due = True
            if running() is None:
                self._cancel()
            else:
                works().call(self._cancel)

    def _found(self) -> asyncio.Task[object] | None:
        """The task, if it is not over and does not run this."""
        task = self._task()
        return None if task is None or task.done() or self._task == running() else task

    def _cancel(self) -> None:
        task = self._found()
        if self.is_due and not self._is_cancelled and task is not None:
            self._is_cancelled = task.cancel(LOST) is not False

    def uncancel(self, error: object) -> bool:
        """Take the cancellation back; whether ``error`` is it.

        It is another's if the task was cancelled from elsewhere too.
        """
        task = self._task() if self._is_cancelled else None
        self.is_due = self._is_cancelled = False
        if task is None:
            return False
        if sys.version_info >= (3, 11):
            ours = task.uncancel() <= self._cancels
        else:
            ours = is_from_loss(error)
        return ours and isinstance(error, asyncio.CancelledError)


def is_from_loss(error: object) -> bool:
    """Whether a cancellation is that by a loss, or came of it.

    Before Python 3.11, what it says is left behind where it passes through an awaited task.
    One that comes while the first is being handled is another's.
    """
    while isinstance(error, BaseException):
        if isinstance(error, asyncio.CancelledError) and error.args == (LOST,):
            return True
        before = error.__context__
        if isinstance(error, asyncio.CancelledError) and _frames(error) & _frames(before):
            return False
        error = before
    return False


def _frames(error: BaseException | None) -> set[object]:
    """The calls that an error has passed through; of an awaited task, those are its own."""
    steps = traceback.walk_tb(None if error is None else error.__traceback__)
    return {frame for frame, _ in steps}


def running() -> TaskRef | None:
    """The running task, as claims name their owner; None outside tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError as error:
        if not is_from_python(error, NO_LOOP):
            raise
        return None
    return None if task is None else ref(task)

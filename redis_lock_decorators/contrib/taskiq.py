"""One run at a time for Taskiq tasks: ``@single_instance`` below ``@broker.task``.

Needs the extra ``taskiq``. See ``docs/how-to/taskiq.rst``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from taskiq import TaskiqMessage, TaskiqMiddleware
from taskiq.exceptions import NoResultError

from redis_lock_decorators import Locks
from redis_lock_decorators.contrib._jobs import JobLock, OnBusy, refuse_bare

__all__ = ["SingleInstanceMiddleware", "single_instance"]

F = TypeVar("F", bound=Callable[..., Any])


def single_instance(
    lock_name: str | list[str] | None = None,
    *,
    on_busy: OnBusy = "raise",
    retry_after: float = 5.0,
    locks: Locks | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Run a Taskiq task under a lock that its arguments name; put it below ``@broker.task``.

    The lock is acquired when a worker starts the task and released when the run ends. A task that
    is delivered again while its crashed run still holds the lock is sent again, whatever
    ``on_busy`` is. That needs ``SingleInstanceMiddleware``.

    Args:
        lock_name: a template over the task's arguments, as for ``redis_lock``, or several; by
            default the function's module and name: one run of the task at a time.
        on_busy: what a task does if another run holds the lock: "raise" LockTimeoutError, "skip"
            (return None), "retry" (wait, then send the task again), or a function of the same
            arguments that returns the result.
        retry_after: the average pause, in seconds, before a task is sent again.
        locks: the project's ``Locks``; by default the module-level configuration.
        options: as for ``redis_lock``; ``acquire_time`` is 0 unless it is given.

    Raises:
        LockNameError: the template is invalid, or uses a parameter that the function lacks.
        ConfigurationError: an option is invalid.
    """
    refuse_bare(lock_name)

    def decorate(function: F) -> F:
        is_async = inspect.iscoroutinefunction(function)
        current = _running.get if is_async else _current_in_thread
        return JobLock(current, lock_name, on_busy, retry_after, locks, options)(function)

    return decorate


class _RunningTask:
    """The task that this worker runs on its event loop."""

    def __init__(self, message: TaskiqMessage, broker: Any) -> None:
        self._message = message
        self._broker = broker
        self.loop = asyncio.get_running_loop()
        self.job_id: str = message.task_id
        self.function = getattr(broker.find_task(message.task_name), "original_func", None)

    async def postpone(self, seconds: float) -> NoReturn:
        await asyncio.sleep(seconds)
        await self._broker.kick(self._broker.formatter.dumps(self._message))
        raise NoResultError


class _TaskInThread:
    """A task whose function is not async: it runs in a thread next to the event loop."""

    def __init__(self, task: _RunningTask) -> None:
        self._task = task
        self.job_id, self.function = task.job_id, task.function

    def postpone(self, seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(
            self._task.postpone(seconds), self._task.loop
        ).result()


_running: ContextVar[_RunningTask | None] = ContextVar("running_task", default=None)


def _current_in_thread() -> _TaskInThread | None:
    task = _running.get()
    return None if task is None else _TaskInThread(task)


class SingleInstanceMiddleware(TaskiqMiddleware):
    """Lets ``single_instance`` send tasks again: ``broker.with_middlewares(…)``."""

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Remember the task that the receiver starts in this context."""
        _running.set(_RunningTask(message, self.broker))
        return message

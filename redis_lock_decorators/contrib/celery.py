"""One run at a time for Celery tasks: ``@single_instance`` below ``@app.task``.

Needs the extra ``celery``. See ``docs/how-to/celery.rst``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from celery import Task, current_task
from celery.exceptions import Retry

from redis_lock_decorators import ConfigurationError, Locks
from redis_lock_decorators.contrib._jobs import JobLock, OnBusy

__all__ = ["single_instance"]

F = TypeVar("F", bound=Callable[..., Any])


def single_instance(
    lock_name: str | list[str] | None = None,
    *,
    on_busy: OnBusy = "raise",
    retry_after: float = 5.0,
    locks: Locks | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Run a Celery task under a lock that its arguments name; put it below ``@app.task``.

    The lock is acquired when a worker starts the task and released when the run ends, also by
    ``retry``. A task that is delivered again while its crashed run still holds the lock is sent
    again, whatever ``on_busy`` is.

    Args:
        lock_name: a template over the task's arguments, as for ``redis_lock``, or several; by
            default the function's module and name: one run of the task at a time.
        on_busy: what a task does if another run holds the lock: "raise" LockTimeoutError, "skip"
            (return None), "retry" (send the task again, without using up its ``max_retries``), or a
            function of the same arguments that returns the result.
        retry_after: the average pause, in seconds, before a task that was sent again starts.
        locks: the project's ``Locks``; by default the module-level configuration.
        options: as for ``redis_lock``; ``acquire_time`` is 0 unless it is given.

    Raises:
        LockNameError: the template is invalid, or uses a parameter that the function lacks.
        ConfigurationError: an option is invalid, or a task is decorated instead of its function.
    """
    job_lock = JobLock(_current_job, lock_name, on_busy, retry_after, locks, options)

    def decorate(function: F) -> F:
        if isinstance(function, Task):
            raise ConfigurationError(
                f"put @single_instance below @app.task: {function.name} is a task already, and "
                "workers would run it without the lock"
            )
        return job_lock(function)

    return decorate


class _RunningTask:
    """The task that this worker runs."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.job_id: str = task.request.id
        self.function = task.run

    def postpone(self, seconds: float) -> NoReturn:
        retries = self._task.request.retries
        again = self._task.signature_from_request(countdown=seconds, retries=retries)
        again.apply_async()
        raise Retry("its lock is busy", when=seconds, sig=again)


def _current_job() -> _RunningTask | None:
    if not current_task:
        return None
    request = current_task.request
    if request.called_directly or request.is_eager:  # nothing could deliver it again
        return None
    return _RunningTask(current_task)

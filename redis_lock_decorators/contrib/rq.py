"""One run at a time for RQ jobs: ``@single_instance`` on functions that are enqueued.

Needs the extra ``rq``. See ``docs/how-to/rq.rst``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rq import Retry, get_current_job

from redis_lock_decorators import Locks
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
    """Run an RQ job under a lock that its arguments name.

    The lock is acquired when a worker starts the job and released when the run ends. A job that is
    run again while its crashed run still holds the lock is scheduled again, whatever ``on_busy``
    is. Scheduled jobs need a worker that was started with its scheduler.

    Args:
        lock_name: a template over the job's arguments, as for ``redis_lock``, or several; by
            default the function's module and name: one run of it at a time.
        on_busy: what a job does if another run holds the lock: "raise" LockTimeoutError, "skip"
            (return None), "retry" (schedule the job again, without using up its ``retry``), or a
            function of the same arguments that returns the result.
        retry_after: the average pause, in seconds, before a job that was scheduled again starts; a
            whole number of seconds, at least 1, is used.
        locks: the project's ``Locks``; by default the module-level configuration.
        options: as for ``redis_lock``; ``acquire_time`` is 0 unless it is given.

    Raises:
        LockNameError: the template is invalid, or uses a parameter that the function lacks.
        ConfigurationError: an option is invalid.
    """
    return JobLock(_current_job, lock_name, on_busy, retry_after, locks, options)


class _RunningJob:
    """The job that this worker runs."""

    def __init__(self, job: Any) -> None:
        self._job = job
        self.job_id: str = job.id
        self.function = job.func

    def postpone(self, seconds: float) -> Retry:
        most = (self._job.number_of_retries or 0) + 1  # one more, however many there were
        return Retry(max=most, interval=max(1, round(seconds)))


def _current_job() -> _RunningJob | None:
    job = get_current_job()
    if job is None or job.worker_name in (None, "", "sync"):  # the Retry would be ignored
        return None
    return _RunningJob(job)

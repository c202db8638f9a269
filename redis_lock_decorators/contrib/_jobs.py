"""What the decorators for task queues have in common."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from redis_lock_decorators import ConfigurationError, Locks
from redis_lock_decorators._rules.owner_info import checked_owner_info
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.contrib._arguments import checked_locks, checked_seconds
from redis_lock_decorators.contrib._calls import is_or_wraps, is_within, noted, with_own_signature

F = TypeVar("F", bound=Callable[..., Any])
#: What a job does if another run holds its lock.
OnBusy = Literal["raise", "skip", "retry"] | Callable[..., Any]


class Job(Protocol):
    """The job, task or message that the calling code runs for."""

    @property
    def job_id(self) -> str:
        """Its identifier, which repeated deliveries share."""

    @property
    def function(self) -> Any:
        """What the worker calls for the job, or None if that is not known."""

    def postpone(self, seconds: float) -> Any:
        """Run the job again after some seconds: raise, or return, what ends this run."""


@dataclass(frozen=True)
class JobInfo:
    """The option ``owner_info`` of a job's lock: the fields that were asked for, and its job.

    Without ``job``, a job that is delivered again after a crash would count as another one.
    """

    current_job: Callable[[], Job | None]
    given: Any
    locks: Locks

    def __call__(self) -> Any:
        given = self.locks._settings.options.owner_info if self.given is None else self.given
        added = given() if callable(given) else {}
        return {**added, **self.essential()} if isinstance(added, Mapping) else added

    def essential(self) -> dict[str, Any]:
        """Return the fields that are stored even if the others fail."""
        job = self.current_job()
        return {} if job is None else {"job": job.job_id}


def refuse_bare(lock_name: object) -> None:
    """Refuse a decorator that was given the function instead of options.

    Raises:
        ConfigurationError: ``lock_name`` is a function.
    """
    if callable(lock_name):
        raise ConfigurationError("write @single_instance() with parentheses")


@dataclass(frozen=True)
class JobLock:
    """A decorator that runs a job under a lock; ``current_job`` returns None outside of jobs."""

    current_job: Callable[[], Job | None]
    lock_name: Any
    on_busy: OnBusy
    retry_after: float
    locks: Locks | None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_bare(self.lock_name)
        if self.on_busy not in ("raise", "skip", "retry") and not callable(self.on_busy):
            known = '"raise", "skip", "retry" or a function'
            raise ConfigurationError(f"on_busy={shown_value(self.on_busy)}: give {known}")
        checked_seconds("retry_after", self.retry_after)
        checked_locks(self.locks)

    def __call__(self, function: F) -> F:
        body = noted(function)
        once = self._redis_lock(body, "raise", {"acquire_time": 0})

        def busy(*args: Any, **kwargs: Any) -> Any:
            if (job := self._own_job(function)) is None:
                return self._answer(once, args, kwargs)
            lock = locked.lock_for(*args, **kwargs)
            match self._next(job, lock.owner_info(), lock.owner()):
                case "acquire":
                    return locked(*args, **kwargs)
                case "postpone":
                    return job.postpone(self._pause())
            return self._answer(once, args, kwargs)

        async def async_busy(*args: Any, **kwargs: Any) -> Any:
            if (job := self._own_job(function)) is None:
                return await _awaited(self._answer(once, args, kwargs))
            lock = locked.lock_for(*args, **kwargs)
            match self._next(job, await lock.owner_info(), await lock.owner()):
                case "acquire":
                    return await locked(*args, **kwargs)
                case "postpone":
                    return await _awaited(job.postpone(self._pause()))
            return await _awaited(self._answer(once, args, kwargs))

        is_async = inspect.iscoroutinefunction(function)
        locked = self._redis_lock(body, async_busy if is_async else busy, {})
        return with_own_signature(locked, function)

    def _own_job(self, function: Any) -> Job | None:
        """Return the running job if this call is the worker's own, not one from within the job."""
        if is_within(function) or (job := self.current_job()) is None:
            return None
        return job if job.function is None or is_or_wraps(job.function, function) else None

    def _redis_lock(self, function: F, on_busy: Any, options: dict[str, Any]) -> Any:
        named: dict[str, Any] = {"lock_name": self.lock_name, "acquire_time": 0}
        if self.lock_name is None and "get_lock_name" not in self.options:
            named["lock_name"] = "{function}"
        locks = checked_locks(self.locks)
        owner_info = self.options.get("owner_info")
        checked_owner_info(owner_info or False)
        info = JobInfo(self.current_job, owner_info, locks)
        given = named | self.options | {"owner_info": info} | options
        return locks.redis_lock(on_busy=on_busy, **given)(function)

    def _next(self, job: Job, holder: Any, owner: str | None) -> str:
        """Return what a busy job does; ``holder`` was read before ``owner``."""
        if owner is None:  # released since the try: whose lock it was is not known
            return "acquire"
        # An earlier delivery has crashed or is about to end: nothing else would do its work.
        is_again = holder is not None and holder.get("job") == job.job_id
        return "postpone" if is_again or self.on_busy == "retry" else "answer"

    def _answer(self, once: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.on_busy == "skip":
            return None
        return self.on_busy(*args, **kwargs) if callable(self.on_busy) else once(*args, **kwargs)

    def _pause(self) -> float:
        """Return about ``retry_after`` seconds; equal pauses would make jobs collide again."""
        return self.retry_after * random.uniform(0.75, 1.25)


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer

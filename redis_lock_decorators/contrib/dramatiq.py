"""One run at a time for Dramatiq actors: ``@single_instance`` below ``@dramatiq.actor``.

Needs the extra ``dramatiq``. See ``docs/how-to/dramatiq.rst``.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread
from typing import Any, NoReturn, TypeVar

from dramatiq import Actor
from dramatiq import broker as brokers
from dramatiq.errors import Retry
from dramatiq.middleware import CurrentMessage

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
    """Run a Dramatiq actor under a lock that its arguments name; put it below ``@dramatiq.actor``.

    The lock is acquired when a worker starts the actor and released when the run ends. A message
    that is delivered again while its crashed run still holds the lock is enqueued again, whatever
    ``on_busy`` is. That needs the middleware ``CurrentMessage`` and ``Retries``.

    Args:
        lock_name: a template over the actor's arguments, as for ``redis_lock``, or several; by
            default the function's module and name: one run of the actor at a time.
        on_busy: what a run does if another holds the lock: "raise" LockTimeoutError, "skip" (return
            None), "retry" (enqueue the message again, without using up its ``max_retries``), or a
            function of the same arguments that returns the result.
        retry_after: the average pause, in seconds, before a message that was enqueued again starts.
        locks: the project's ``Locks``; by default the module-level configuration.
        options: as for ``redis_lock``; ``acquire_time`` is 0 unless it is given.

    Raises:
        LockNameError: the template is invalid, or uses a parameter that the function lacks.
        ConfigurationError: an option is invalid, or an actor is decorated instead of its function.
    """
    job_lock = JobLock(_current_job, lock_name, on_busy, retry_after, locks, options)

    def decorate(function: F) -> F:
        if isinstance(function, Actor):
            raise ConfigurationError(
                f"put @single_instance below @dramatiq.actor: {function.actor_name} is an actor "
                "already, and workers would run it without the lock"
            )
        return job_lock(function)

    return decorate


class _RunningMessage:
    """The message that this worker processes."""

    def __init__(self, message: Any) -> None:
        self._message = message
        self.job_id: str = message.message_id
        # An async actor runs in a thread that belongs to no broker.
        broker = getattr(current_thread(), "broker", brokers.global_broker)
        actor = broker and broker.actors.get(message.actor_name)
        self.function = actor and actor.fn

    def postpone(self, seconds: float) -> NoReturn:
        retries = self._message.options.get("retries", 0)
        self._message.options["retries"] = retries - 1  # Retries adds it again
        raise Retry("its lock is busy", delay=round(seconds * 1000))


def _current_job() -> _RunningMessage | None:
    message = CurrentMessage.get_current_message()
    return None if message is None else _RunningMessage(message)

"""Jobs that run once per period over all nodes: ``@once_per`` on jobs of APScheduler 3.

Needs the extra ``apscheduler``. See ``docs/how-to/apscheduler.rst``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from redis_lock_decorators import ConfigurationError, Locks
from redis_lock_decorators._rules.durations import LONGEST_EXPIRE
from redis_lock_decorators.contrib._arguments import checked_locks, checked_seconds
from redis_lock_decorators.contrib._calls import with_own_signature

__all__ = ["once_per"]

F = TypeVar("F", bound=Callable[..., Any])
_FIXED = {"acquire_time", "min_hold", "on_busy"}


def once_per(
    period: float,
    lock_name: str | list[str] | None = None,
    *,
    slack: float | None = None,
    locks: Locks | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Run a job once per period, although the scheduler of each node starts it.

    The first node to start the job runs it; the others skip it, as long as it runs and until the
    period is nearly over. A run that raises an exception, or whose process crashes, does not count:
    nodes that start the job later run it.

    Args:
        period: the seconds between two runs, as the job's trigger has it.
        lock_name: a template over the job's arguments, as for ``redis_lock``, or several; by
            default the function's module and name, which a lambda or ``functools.partial`` lacks.
        slack: by how many seconds a run may start earlier or later than the last one did within its
            period; by default a tenth of the period.
        locks: the project's ``Locks``; by default the module-level configuration.
        options: as for ``redis_lock``, without acquire_time, on_busy and min_hold.

    Raises:
        LockNameError: the template is invalid, or uses a parameter that the function lacks.
        ConfigurationError: an option is invalid.
    """
    if callable(period):
        raise ConfigurationError("write @once_per(60) with the seconds between two runs")
    checked_seconds("period", period)
    if period > LONGEST_EXPIRE:
        raise ConfigurationError(f"period={period!r}: give at most {LONGEST_EXPIRE:.0f} s")
    if slack is None:
        slack = period / 10
    elif slack != 0:
        checked_seconds("slack", slack)
    if slack >= period:
        raise ConfigurationError(f"slack={slack!r}: give seconds, fewer than period={period!r}")
    if fixed := options.keys() & _FIXED:
        raise ConfigurationError(f"once_per determines {', '.join(sorted(fixed))}: leave it out")
    if lock_name is None and "get_lock_name" not in options:
        lock_name = "{function}"
    decorate: Any = checked_locks(locks).redis_lock(
        lock_name, acquire_time=0, on_busy="skip", min_hold=period - slack, **options
    )

    def decorated(function: F) -> F:
        if lock_name == "{function}" and _is_unnamed(function):
            raise ConfigurationError(
                "a lambda or functools.partial has no name of its own: give one, as in "
                "once_per(60, 'digest:eu'), or other such jobs of the module would be skipped"
            )
        return with_own_signature(decorate(function), function)

    return decorated


def _is_unnamed(function: Callable[..., Any]) -> bool:
    """Whether other jobs may have the name of the function, too."""
    return isinstance(function, partial) or getattr(function, "__name__", "") == "<lambda>"

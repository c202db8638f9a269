"""pottery's ``synchronize``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from redis_lock_decorators import ConfigurationError
from redis_lock_decorators.compat.pottery.redlock import Redlock

F = TypeVar("F", bound=Callable[..., Any])


def synchronize(
    *,
    key: str,
    masters: Iterable[Any] = frozenset(),
    raise_on_redis_errors: bool = False,
    auto_release_time: float = 10,
    blocking: bool = True,
    timeout: float = -1,
) -> Callable[[F], F]:
    """Decorate a function, which then runs once at a time; the arguments are those of ``Redlock``.

    Raises:
        QuorumNotAchieved: at a call: the lock was not free within ``timeout`` seconds.
        ReleaseUnlockedLock: at a call: the lock expired while the function ran.
        ConfigurationError: an argument is invalid, or the function is async or a generator.
    """
    redlock = functools.partial(
        Redlock,
        key=key,
        masters=frozenset(masters),
        raise_on_redis_errors=raise_on_redis_errors,
        auto_release_time=auto_release_time,
        context_manager_blocking=blocking,
        context_manager_timeout=timeout,
    )
    redlock()  # checks the arguments

    def decorated(function: F) -> F:
        if _runs_later(function):
            raise ConfigurationError(
                f"the body of {function!r} would run without the lock: use @redis_lock instead"
            )

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with redlock():
                return function(*args, **kwargs)

        return cast(F, locked)

    return decorated


def _runs_later(function: object) -> bool:
    kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return any(is_kind(function) for is_kind in kinds)

"""``on_busy``: what a call gives whose lock is not free in time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal

from redis_lock_decorators._rules.arguments import is_pass_through
from redis_lock_decorators._rules.callables import Kind, full_name, kind_of
from redis_lock_decorators._rules.fitting import takes_calls_of
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

#: What a call does if the lock is not free in time.
OnBusy = Literal["raise", "skip"] | Callable[..., Any]
#: The kinds that ``on_busy`` may have, by the kind of the decorated function.
_ANSWERS: dict[Kind, tuple[Kind, ...]] = {
    Kind.PLAIN: (Kind.PLAIN,),
    Kind.COROUTINE: (Kind.COROUTINE, Kind.PLAIN),
    Kind.GENERATOR: (Kind.GENERATOR, Kind.PLAIN),
    Kind.ASYNC_GENERATOR: tuple(Kind),
}


def checked_busy(on_busy: object) -> Callable[..., Any] | None:
    """Return the callable that gives a busy call's result; None means to raise."""
    if on_busy == "raise":
        return None
    if on_busy == "skip":
        return lambda *args, **kwargs: None
    if isinstance(on_busy, type) and issubclass(on_busy, BaseException):
        raise ConfigurationError(
            f"on_busy={on_busy.__name__}: the call would return this error instead of raising it: "
            "give a function that raises it"
        )
    if callable(on_busy):
        return on_busy
    raise ConfigurationError(f'on_busy={shown_value(on_busy)}: give "raise", "skip" or a function')


def refuse_unlike(busy: Callable[..., Any], kind: Kind) -> None:
    """Refuse an ``on_busy`` whose body would never run, as the caller does not await or iterate."""
    own, fitting = kind_of(busy), _ANSWERS[kind]
    if own not in fitting:
        raise ConfigurationError(
            f"on_busy={full_name(busy)} is {own.value}, but the decorated function is "
            f"{kind.value}, whose callers would not run it: give "
            + " or ".join(fit.value for fit in fitting)
        )


def refuse_other_arguments(busy: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Refuse an ``on_busy`` that does not take the arguments of the decorated function."""
    if not is_pass_through(function) and not takes_calls_of(busy, function):
        raise ConfigurationError(
            f"on_busy={full_name(busy)} does not take the arguments of the call: give a "
            f"function with the parameters of {full_name(function)}"
        )


def answer(busy: Callable[..., Any], function: Callable[..., Any], result: Any) -> Any:
    """Return the result of ``on_busy``.

    Raises:
        ConfigurationError: it is a coroutine, which no caller would await.
    """
    if not isinstance(result, Coroutine):
        return result
    result.close()
    raise ConfigurationError(
        f"on_busy={full_name(busy)} returned a coroutine, but callers of {full_name(function)}, "
        "which is not async, would not run it: give a function that returns the answer itself"
    )

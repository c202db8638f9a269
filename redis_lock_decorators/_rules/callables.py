"""Kinds of callables, and the refusal of work that would run after the lock is released."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from functools import partial
from types import FunctionType, GeneratorType
from typing import TypeVar

from redis_lock_decorators._rules.deferred_results import (
    BELOW,
    BELOW_CONTEXT_MANAGER,
    cure_of,
    drop,
    is_future,
    makes_context_managers,
)
from redis_lock_decorators._rules.main_module import module_of
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

R = TypeVar("R")

_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class Kind(Enum):
    """What calling a function does."""

    PLAIN = "a function"
    GENERATOR = "a generator"
    COROUTINE = "an async function"
    ASYNC_GENERATOR = "an async generator"


_TESTS: dict[Kind, Callable[[object], bool]] = {
    Kind.COROUTINE: inspect.iscoroutinefunction,
    Kind.ASYNC_GENERATOR: inspect.isasyncgenfunction,
    Kind.GENERATOR: inspect.isgeneratorfunction,
}


def kind_of(function: Callable[..., object]) -> Kind:
    """Return the kind of a function, method, ``functools.partial`` or object with ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    if type(function) is FunctionType and _is_unmarked(function):
        return Kind.PLAIN
    call = getattr(type(function), "__call__", None)  # noqa: B004  # needs the method itself
    for kind, is_of in _TESTS.items():
        if is_of(function) or is_of(call):
            return kind
    return Kind.PLAIN


def _is_unmarked(function: FunctionType) -> bool:
    """Whether a function is plain beyond doubt: the common case, fast."""
    return not (function.__code__.co_flags & _LATER or function.__dict__)


def full_name(function: Callable[..., object]) -> str:
    """Return the module and qualified name of a function, or of the class of a callable object.

    It is the same in every process, also if the module is the program's main module.
    """
    while isinstance(function, partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{module_of(owner)}.{owner.__qualname__}"


def refuse_unrun(function: Callable[..., object], result: R) -> R:
    """Return the result, unless it is work that has not run yet.

    Other awaitable objects, such as clients and connection pools, are results.

    Raises:
        ConfigurationError: it is a coroutine, a generator, a pending future or the like, whose work
            would run after the lock is released.
    """
    cure = cure_of(result)
    if cure is None:
        return result
    drop(result)
    raise ConfigurationError(
        f"{full_name(function)} returned a {type(result).__name__} that has not run yet: {cure}"
    )


def refuse_later(function: Callable[..., object], fitting: Collection[Kind]) -> None:
    """Refuse a function whose body runs after the call.

    Raises:
        ConfigurationError: it cannot be called, is not of one of the ``fitting`` kinds, or returns
            a context manager.
    """
    if not callable(function):
        raise ConfigurationError(f"call({shown_value(function)}): give a function")
    kind = kind_of(function)
    if kind not in fitting:
        raise ConfigurationError(f"{full_name(function)} is {kind.value}: {BELOW}")
    refuse_manager(function)


def refuse_manager(function: Callable[..., object]) -> None:
    """Refuse a function whose body runs where its context manager is entered.

    Raises:
        ConfigurationError: ``@contextmanager`` or ``@asynccontextmanager`` made the function.
    """
    if makes_context_managers(function):
        raise ConfigurationError(
            f"{full_name(function)} returns a context manager: {BELOW_CONTEXT_MANAGER}"
        )


def is_pending(answer: object) -> bool:
    """Whether this must be awaited, and is not a result that happens to be awaitable."""
    return inspect.isawaitable(answer) and (
        isinstance(answer, (GeneratorType, Coroutine)) or is_future(type(answer))
    )

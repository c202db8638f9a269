"""Kinds of callables, and results that would run only after the lock is let go."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import TypeVar

from redis_lock_decorators.errors import ConfigurationError

R = TypeVar("R")

_UNRUN = frozenset({GeneratorType, AsyncGeneratorType})


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
    """The kind of a function, method, ``functools.partial`` or object with ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004  # its kind, not whether it is there
    for kind, is_of in _TESTS.items():
        if is_of(function) or is_of(call):
            return kind
    return Kind.PLAIN


def full_name(function: Callable[..., object]) -> str:
    """Module and qualified name of a function, or of what an object with ``__call__`` is."""
    while isinstance(function, partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(owner, "__module__", None) or "builtins"
    return f"{module}.{owner.__qualname__}"


def refuse_unrun(function: Callable[..., object], result: R) -> R:
    """The result, unless it is work that has not been done yet.

    Raises:
        ConfigurationError: it is a coroutine, a generator or the like, whose body would run
            after the lock is let go.
    """
    kind = type(result)
    if kind not in _UNRUN and not hasattr(kind, "__await__"):
        return result
    close = getattr(result, "close", None)
    if callable(close):
        close()
    raise ConfigurationError(
        f"{full_name(function)} returned a {kind.__name__} that has not run yet: the lock would "
        "be let go before its body runs; put @redis_lock on the function that does the work, "
        "or yield from it"
    )

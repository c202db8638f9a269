"""Kinds of callables, and results that would run only after the lock is let go."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import TypeVar

from redis_lock_decorators.errors import ConfigurationError

R = TypeVar("R")

_UNRUN = frozenset({GeneratorType, AsyncGeneratorType})
_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_CURE = (
    "the lock would be let go before its body runs; put @redis_lock on the function that does "
    "the work, or yield from it"
)


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
    if type(function) is FunctionType and _is_unmarked(function):
        return Kind.PLAIN
    call = getattr(type(function), "__call__", None)  # noqa: B004  # its kind, not whether it is there
    for kind, is_of in _TESTS.items():
        if is_of(function) or is_of(call):
            return kind
    return Kind.PLAIN


def _is_unmarked(function: FunctionType) -> bool:
    """Whether nothing says that this is another kind than plain; most functions are."""
    return not (function.__code__.co_flags & _LATER or function.__dict__)


def full_name(function: Callable[..., object]) -> str:
    """Module and qualified name of a function, or of what an object with ``__call__`` is."""
    while isinstance(function, partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(owner, "__module__", None) or "builtins"
    return f"{module}.{owner.__qualname__}"


def refuse_unrun(function: Callable[..., object], result: R) -> R:
    """The result, unless it is work that has not been done yet.

    Other objects that can be awaited, such as clients and pools of connections, are results.

    Raises:
        ConfigurationError: it is a coroutine, a generator or a pending future, whose body would
            run after the lock is let go.
    """
    kind = type(result)
    if kind not in _UNRUN and not hasattr(kind, "__await__"):
        return result
    if not _is_unrun(result):
        return result
    _drop(result)
    raise ConfigurationError(
        f"{full_name(function)} returned a {kind.__name__} that has not run yet: {_CURE}"
    )


def refuse_later(function: Callable[..., object], fitting: Collection[Kind]) -> None:
    """Refuse, before it is called, a function whose body runs after the call.

    Raises:
        ConfigurationError: the function is of another than the fitting kinds.
    """
    kind = kind_of(function)
    if kind not in fitting:
        raise ConfigurationError(f"{full_name(function)} is {kind.value}: {_CURE}")


def is_pending(answer: object) -> bool:
    """Whether this is work to be awaited, and not a result that happens to be awaitable."""
    return inspect.isawaitable(answer) and (
        isinstance(answer, (GeneratorType, Coroutine)) or _is_future(answer)
    )


def _is_unrun(result: object) -> bool:
    if isinstance(result, (GeneratorType, AsyncGeneratorType, Coroutine)):
        return True
    return _is_future(result) and not result.done()  # type: ignore[attr-defined]


def _is_future(thing: object) -> bool:
    """How asyncio.isfuture() knows futures, of other event loops too."""
    return getattr(type(thing), "_asyncio_future_blocking", None) is not None


def _drop(result: object) -> None:
    """Have Python not warn of a coroutine that never began; what others may use is left alone."""
    if isinstance(result, CoroutineType):
        is_new = inspect.getcoroutinestate(result) == inspect.CORO_CREATED
    elif isinstance(result, GeneratorType):
        is_new = inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    else:
        return
    if is_new:
        result.close()

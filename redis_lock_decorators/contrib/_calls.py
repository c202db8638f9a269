"""Whose call of a decorated function a call is, and what frameworks see of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
#: The functions that run under their locks in this context.
_running: ContextVar[tuple[object, ...]] = ContextVar("running", default=())


def is_within(function: object) -> bool:
    """Whether this call comes from within a run of the function."""
    return function in _running.get()


def is_or_wraps(called: Any, function: object) -> bool:
    """Whether what a worker calls is the function, or decorators and methods around it."""
    while called is not None and called is not function:
        called = getattr(called, "__func__", None) or getattr(called, "__wrapped__", None)
    return called is not None


def noted(function: F) -> F:
    """Wrap a function so that calls of it from within itself are known."""

    @contextmanager
    def noting() -> Iterator[None]:
        token = _running.set((*_running.get(), function))
        try:
            yield
        finally:
            _running.reset(token)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with noting():
            return function(*args, **kwargs)

    @wraps(function)
    async def async_run(*args: Any, **kwargs: Any) -> Any:
        with noting():
            return await function(*args, **kwargs)

    if inspect.iscoroutinefunction(function):
        return cast(F, async_run)
    # A generator's body runs when the worker iterates over it.
    is_plain = inspect.isfunction(function) and not (
        inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    )
    return cast(F, run) if is_plain else function


def with_own_signature(locked: Any, function: F) -> F:
    """Give what decorates a function its signature: frameworks do not follow __wrapped__."""
    if inspect.isfunction(locked):
        cast(Any, locked).__signature__ = inspect.signature(function)
    return cast(F, locked)

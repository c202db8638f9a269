"""Functions that run when they are called, return a coroutine and are known as async."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


async def _any() -> None:
    """An example of an async function, for ``inspect``."""


class _Begun(partial[Any]):
    """A function known as async before Python 3.12: ``inspect`` unwraps a ``partial``."""

    __wrapped__: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


def known_as_async(function: F) -> F:
    """Mark a function that returns a coroutine as an async function.

    Code that asks ``inspect`` first, as ``unittest`` and web frameworks do, then awaits the result.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    begun: Any = _Begun(_any)
    begun.__wrapped__, begun.__doc__ = function, function.__doc__ or ""
    return cast(F, begun)


def as_async(function: F) -> F:
    """Mark a function as async, as a decorator that keeps its name and docstring."""
    known = known_as_async(function)
    if known is not function:
        update_wrapper(known, function)
    return known

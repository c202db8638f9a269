"""Event loops that other threads may have closed: calls on them, and their entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:
    """Call a function soon on an event loop, from any thread; do nothing if the loop is closed.

    The garbage collector runs finalizers, and closes coroutines, on any thread.
    """
    try:
        loop.call_soon_threadsafe(function, *args, context=Context())
    except RuntimeError:
        if not loop.is_closed():
            raise


def is_running_here(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether this code runs on an event loop, and may call what is not thread-safe."""
    return loop is not None and asyncio._get_running_loop() is loop


def raise_if_closed(loop: asyncio.AbstractEventLoop) -> None:
    """Raise GeneratorExit if a coroutine of an event loop runs elsewhere: it is being closed.

    Called where a client has raised an exception, which may have replaced the GeneratorExit: its
    clean-up fails on a closed event loop. The flows would repeat the request, and await that.
    """
    if not is_running_here(loop):
        raise GeneratorExit from None


def forget_closed(found: dict[asyncio.AbstractEventLoop, T]) -> list[T]:
    """Remove and return the values of closed event loops; other threads may do so concurrently."""
    closed = [loop for loop in list(found) if loop.is_closed()]
    return [value for loop in closed if (value := found.pop(loop, None)) is not None]

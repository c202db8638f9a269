"""Entries of event loops, which other threads may have closed, and calls on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.closing import is_being_closed
from redis_lock_decorators.errors import LockError

#: A process and one of its event loops.
LoopKey = tuple[int, asyncio.AbstractEventLoop]

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

    Raises:
        LockError: it is not being closed, but awaited on another event loop.
    """
    if not is_running_here(loop):
        if asyncio._get_running_loop() is not None and not is_being_closed():
            raise LockError("this was awaited on another event loop than that of its lease")
        raise GeneratorExit from None


def running_loop() -> LoopKey:
    """The key of the running event loop, as a forked child may run on a loop of its parent.

    What the parent has stored for the loop stays in memory: its finalizers would use the sockets
    of the parent.
    """
    return fork.process_id, asyncio.get_running_loop()


def forget_closed(found: dict[LoopKey, T]) -> list[T]:
    """Remove and return the values of closed event loops; other threads may do so concurrently."""
    own = [key for key in list(found) if key[0] == fork.process_id]
    closed = [key for key in own if key[1].is_closed()]
    return [value for key in closed if (value := found.pop(key, None)) is not None]

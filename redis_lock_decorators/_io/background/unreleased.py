"""Releases by the event loop, for tasks whose stack is exhausted.

Where a call raises RecursionError, each call that handles it may raise it too. Appending to a deque
needs no Python frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.closed_loops import call_on, is_running_here

#: any thread: releases to make, each with its event loop
unreleased: deque[tuple[asyncio.AbstractEventLoop, Callable[[], Coroutine[Any, Any, object]]]] = (
    deque(maxlen=10_000)
)


def release_soon(loop: asyncio.AbstractEventLoop) -> None:
    """Make the releases of an event loop in its next iteration.

    The stack of the running task may be too short even for that. Then they are made when the task
    ends, or at the latest when another lock is acquired.
    """
    if not is_running_here(loop):  # a coroutine of the loop is closed on another thread
        call_on(loop, _release)
        return
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(_release, context=Context())
    loop.call_soon(_release, context=Context())


def _release(_: object = None) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(len(unreleased)):
        try:
            other, release = unreleased.popleft()
        except IndexError:  # another thread has emptied the deque
            return
        if other is loop:
            start(release())
        elif not other.is_closed():
            unreleased.append((other, release))

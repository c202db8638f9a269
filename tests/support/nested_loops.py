"""Run an event loop inside one of its own callbacks, as nest_asyncio does in notebooks."""

from __future__ import annotations

import asyncio

from support.virtual_loop import VirtualLoop


def run_nested(loop: VirtualLoop, seconds: float) -> None:
    """Run the event loop for seconds of virtual time, inside the running step or callback."""
    task = asyncio.current_task(loop)
    waiting = len(loop._ready)  # type: ignore[attr-defined]
    end = loop.now + seconds
    timer = loop.call_at(end, int)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)  # type: ignore[attr-defined]
    try:
        while loop.now < end:
            loop._run_once()  # type: ignore[attr-defined]
    finally:
        timer.cancel()
        if task is not None:
            asyncio.tasks._enter_task(loop, task)  # type: ignore[attr-defined]
        for _ in range(waiting):  # the outer iteration has counted callbacks that were run here
            loop.call_soon(int)

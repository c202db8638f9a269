"""The queue of a lock, as the server sees it."""

from __future__ import annotations

from typing import Any

from support.leftovers import until


def queue_of(name: str) -> str:
    """The key of the queue."""
    return f"{{sys:lock:{name}}}:queue"


async def queued(front: Any, direct: Any, name: str, count: int = 1) -> None:
    """Wait until so many stand in the queue of a lock."""
    await until(front, lambda: direct.zcard(queue_of(name)) >= count)

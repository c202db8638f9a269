"""What belongs to event loops is forgotten when these are closed."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def forget_closed(found: dict[asyncio.AbstractEventLoop, T]) -> list[T]:
    """Forget what belongs to event loops that were closed; other threads may do so as well.

    Returns what this call has taken away.
    """
    closed = [loop for loop in list(found) if loop.is_closed()]
    return [gone for loop in closed if (gone := found.pop(loop, None)) is not None]

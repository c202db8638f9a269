"""Removal of the entries of closed event loops."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def forget_closed(found: dict[asyncio.AbstractEventLoop, T]) -> list[T]:
    """Remove and return the values of closed event loops; other threads may do so concurrently."""
    closed = [loop for loop in list(found) if loop.is_closed()]
    return [value for loop in closed if (value := found.pop(loop, None)) is not None]

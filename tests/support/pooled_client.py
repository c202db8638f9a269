"""A request batcher over a simulated pool of an asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redis_lock_decorators._io.asyncio_port import pool_transport
from redis_lock_decorators._io.background import timers
from redis_lock_decorators._io.transport import (
    asyncio_pool,
    exchange,
    exclusive_limit,
    idle_connections,
    openings,
    task_connection,
    task_exclusive,
)
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from support.asyncio_pools import Pool
from support.batching import use_clock
from support.virtual_loop import VirtualLoop

GET = ("GET", b"key")


class Client:
    """A client with its batcher and the transport over its pool."""

    def __init__(self, pool: Pool) -> None:
        self.batcher = RequestBatcher()
        self.connection_pool = pool
        self.transport = pool_transport(self.batcher, self)

    async def get(self, seconds: float = 5) -> Any:
        return await self.batcher.exchange(self.transport, GET, exchange.monotonic() + seconds)

    async def many(self, count: int) -> list[Any]:
        return await asyncio.gather(*[self.get() for _ in range(count)], return_exceptions=True)


def virtual_loop(monkeypatch: pytest.MonkeyPatch) -> VirtualLoop:
    """An event loop in virtual time; its clock is the clock of batchers and pools."""
    loop = VirtualLoop()
    monkeypatch.setattr(
        task_connection, "input_check", lambda stream: lambda milliseconds: stream.has_input
    )
    use_clock(loop.time, monkeypatch)
    modules = (asyncio_pool, exchange, exclusive_limit, idle_connections, openings, task_exclusive)
    for module in (*modules, task_connection, timers):
        monkeypatch.setattr(module, "monotonic", loop.time)
    return loop

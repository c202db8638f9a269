"""An async on_lost and the end of the program."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.fronts import LEGACY, AsyncioFront
from support.losing import losing

from redis_lock_decorators import LockLostError

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


async def closing(front, program):
    """Run a program, and close its clients, which takes less time than its on_lost."""
    try:
        await program
    finally:
        for client in front._opened:
            await client.aclose()


@pytest.mark.parametrize("finds", ["renewal", "extension", "exit"])
def test_async_on_lost_ends_before_a_program_that_ends_with_its_block(server, direct, name, finds):
    front, steps = AsyncioFront(), []

    async def on_lost(lease, why):
        steps.append("begun")
        await asyncio.sleep(0.3)
        steps.append("ended")

    async def program():
        async with losing(front, server, name, on_lost) as lease:
            direct.delete(lease.key)
            if finds == "renewal":
                await asyncio.sleep(10)
            if finds == "extension":
                await lease.extend()

    with pytest.raises(LockLostError):
        asyncio.run(closing(front, program()))

    assert steps == ["begun", "ended"]


def test_block_waits_for_an_async_on_lost_for_a_limited_time(server, direct, name, caplog):
    front, steps = AsyncioFront(), []

    async def on_lost(lease, why):
        steps.append("begun")
        await lease.release()  # it does not wait for itself
        await asyncio.sleep(60)

    async def program():
        async with losing(front, server, name, on_lost) as lease:
            direct.delete(lease.key)

    before = time.monotonic()
    with pytest.raises(LockLostError):
        asyncio.run(closing(front, program()))

    assert time.monotonic() - before < 30
    assert steps == ["begun"]
    assert "was cancelled before its end" in caplog.text

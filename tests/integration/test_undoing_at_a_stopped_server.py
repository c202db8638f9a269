"""Acquisitions that were given up while the server stood still hold nothing when it goes on."""

from __future__ import annotations

import asyncio
import signal

import pytest
from support.fronts import LEGACY
from support.leftovers import ASYNCIO, until

from redis_lock_decorators.asyncio import RedisLock

TASKS = 50

pytestmark = [
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio"),
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signal stops a process"),
]


def test_stopped_server_gets_what_undoes_the_acquisitions_of_many_tasks(frail):
    """The texts of so many scripts would not fit into the buffers of one connection."""

    async def fail(number):
        lock = RedisLock(f"undone:{number}", client=client, acquire_time=3, expire=60)
        with pytest.raises(Exception, match=r"(?i)time"):
            async with lock:
                pass

    async def test():
        async with RedisLock("known", client=client):  # the server knows the scripts
            pass
        frail.pause()
        try:
            await asyncio.gather(*[fail(number) for number in range(TASKS)])
        finally:
            frail.resume()
        await until(ASYNCIO, lambda: not direct.keys("sys:lock:*"))
        await client.aclose()

    client, direct = ASYNCIO.client(frail), frail.client()
    ASYNCIO.run(test())
    direct.close()

"""Locks as fixtures of ``unittest``, which awaits only coroutine functions."""

from __future__ import annotations

import sys
import unittest

import pytest
from support.fronts import LEGACY

pytestmark = [
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has enterAsyncContext"),
]


def passed(case: type[unittest.TestCase]) -> bool:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert [text for _, text in result.errors + result.failures] == []
    return result.testsRun > 0


@pytest.fixture(params=["RedisLock", "drop-in"])
def make(request):
    """A function that creates a lock from a client and a key."""
    from redis_lock_decorators.asyncio import RedisLock
    from redis_lock_decorators.asyncio.lock import Lock

    if request.param == "drop-in":
        return lambda client, key: Lock(client, key)
    return lambda client, key: RedisLock(key, client=client, prefix="")


@pytest.mark.filterwarnings("error")
def test_lock_entered_by_a_test_case_is_released_at_its_end(make, server, direct, name):
    import redis.asyncio

    class Case(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            client = await self.enterAsyncContext(redis.asyncio.Redis(port=server.port))
            await self.enterAsyncContext(make(client, name))

        async def test_lock_exists(self) -> None:
            assert direct.exists(name)

    assert passed(Case)
    assert not direct.exists(name)


@pytest.mark.filterwarnings("error")
def test_release_as_a_cleanup_is_awaited(make, server, direct, name):
    import redis.asyncio

    class Case(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            client = await self.enterAsyncContext(redis.asyncio.Redis(port=server.port))
            lock = make(client, name)
            acquired = await lock.acquire()
            self.addAsyncCleanup((lock if acquired is True else acquired).release)

        async def test_lock_exists(self) -> None:
            assert direct.exists(name)

    assert passed(Case)
    assert not direct.exists(name)

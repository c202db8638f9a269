"""Locks as fixtures of ``unittest``, which asks of what it calls whether it is to be awaited."""

from __future__ import annotations

import sys
import unittest

import pytest
from support.fronts import LEGACY

pytestmark = [
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 knows nothing of asyncio"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has enterAsyncContext"),
]


def passed(case: type[unittest.TestCase]) -> bool:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert [text for _, text in result.errors + result.failures] == []
    return result.testsRun > 0


@pytest.fixture(params=["RedisLock", "drop-in"])
def make(request):
    """What makes a lock of a client and its key."""
    from redis_lock_decorators.asyncio import RedisLock
    from redis_lock_decorators.asyncio.lock import Lock

    if request.param == "drop-in":
        return lambda client, key: Lock(client, key)
    return lambda client, key: RedisLock(key, client=client, prefix="")


@pytest.mark.filterwarnings("error")
def test_a_lock_that_a_test_enters_is_let_go_at_its_end(make, server, direct, name):
    import redis.asyncio

    class Case(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            client = await self.enterAsyncContext(redis.asyncio.Redis(port=server.port))
            await self.enterAsyncContext(make(client, name))

        async def test_it(self) -> None:
            assert direct.exists(name)

    assert passed(Case)
    assert not direct.exists(name)


@pytest.mark.filterwarnings("error")
def test_a_release_as_a_clean_up_is_awaited(make, server, direct, name):
    import redis.asyncio

    class Case(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            client = await self.enterAsyncContext(redis.asyncio.Redis(port=server.port))
            lock = make(client, name)
            taken = await lock.acquire()
            self.addAsyncCleanup((lock if taken is True else taken).release)

        async def test_it(self) -> None:
            assert direct.exists(name)

    assert passed(Case)
    assert not direct.exists(name)

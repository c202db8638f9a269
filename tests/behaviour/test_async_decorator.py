"""@redis_lock on async functions and async generators."""

from __future__ import annotations

import asyncio
import functools
import inspect

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.fronts import AsyncioFront

from redis_lock_decorators import ConfigurationError, LockLostError, Locks, LockTimeoutError
from redis_lock_decorators.asyncio import RedisLock, current_lease

FRONTS = [AsyncioFront()]


@pytest.fixture
def locks(conn, name):
    """A separate Locks; its keys start with the test's name."""
    return Locks(get_async_redis_connection=lambda: conn, prefix=f"{name}:")


async def test_lock_is_held_while_the_body_runs(front, conn, locks):
    inside, most = [], []

    @locks.redis_lock("work:{n}", acquire_time=60, delta=0.002)
    async def work(n):
        inside.append(n)
        most.append(len(inside))
        await asyncio.sleep(0.001)
        assert await work.lock_for(n).owner() == current_lease().identifier
        inside.remove(n)
        return n * 2

    results = await asyncio.gather(*[work(21) for _ in range(5)])

    assert results == [42] * 5
    assert max(most) == 1
    assert inspect.iscoroutinefunction(work)
    assert isinstance(work.lock_for(1), RedisLock)
    assert current_lease() is None


async def test_errors_propagate_and_release_the_lock(front, conn, locks):
    @locks.redis_lock("x")
    async def work():
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        await work()
    assert not await work.lock_for().locked()


async def test_methods_partials_and_callable_objects(front, conn, locks, name):
    class Store:
        @locks.redis_lock("stock:{self.name}:{sku}")
        async def sell(self, sku):
            return current_lease().key

        @classmethod
        @locks.redis_lock("{cls.__name__}")
        async def under_class(cls):
            return current_lease().key

        async def __call__(self, n):
            return current_lease().key

        name = "s"

    async def work(a, b):
        return current_lease().key

    assert await Store().sell("x") == f"{name}:stock:s:x"
    assert await Store.under_class() == f"{name}:Store"
    assert await locks.redis_lock("{a}{b}")(functools.partial(work, 1))(2) == f"{name}:12"
    assert await locks.redis_lock("call:{n}")(Store())(5) == f"{name}:call:5"


async def test_busy_call_raises_or_is_skipped_or_returns_a_default(front, conn, locks, name):
    async def body(n):
        raise AssertionError("it must not run")

    async def doubled(n):
        return n * 2

    def decorated(on_busy):
        return locks.redis_lock("busy", acquire_time=0, on_busy=on_busy)(body)

    class Awaitable:
        def __await__(self):
            raise AssertionError("it is a result")

    pool = Awaitable()

    async with RedisLock("busy", client=conn, prefix=f"{name}:"):
        with pytest.raises(LockTimeoutError):
            await decorated("raise")(1)
        assert await decorated(lambda n: pool)(1) is pool
        assert await decorated(lambda n: asyncio.ensure_future(doubled(n)))(21) == 42
        assert await decorated("skip")(1) is None
        assert await decorated(lambda n: n + 1)(1) == 2
        assert await decorated(doubled)(21) == 42


async def test_async_generator_holds_the_lock_during_iteration(front, conn, locks):
    @locks.redis_lock("steps:{n}")
    async def steps(n):
        for step in range(n):
            assert current_lease() is not None
            yield step

    iterator, lock = steps(3), steps.lock_for(3)

    assert inspect.isasyncgenfunction(steps)
    assert not await lock.locked()
    assert await anext(iterator) == 0
    assert await lock.locked()
    assert current_lease() is None
    assert [step async for step in iterator] == [1, 2]
    assert not await lock.locked()


async def test_async_generator_releases_when_closed_or_failing(front, conn, locks):
    seen = []

    @locks.redis_lock("steps")
    async def steps():
        try:
            got = yield 1
            yield got
        except KeyError:
            seen.append("caught")
            raise
        finally:
            seen.append(await steps.lock_for().locked())

    closed, thrown = steps(), steps()
    assert await anext(closed) == 1
    assert await closed.asend("sent") == "sent"
    await closed.aclose()
    assert not await steps.lock_for().locked()
    await anext(thrown)
    with pytest.raises(KeyError):
        await thrown.athrow(KeyError("x"))
    assert not await steps.lock_for().locked()
    assert seen == [True, "caught", True]


async def test_cancelled_async_generator_releases_the_lock(front, conn, locks):
    begun = asyncio.Event()

    @locks.redis_lock("steps")
    async def steps():
        begun.set()
        await asyncio.sleep(60)
        yield 1

    async def iterate():
        return [step async for step in steps()]

    task = asyncio.ensure_future(iterate())
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await steps.lock_for().locked()


async def test_busy_async_generator_is_empty_or_yields_a_default(front, conn, locks, name):
    async def body():
        raise AssertionError("it must not run")
        yield

    async def other():
        yield 7

    def decorated(on_busy):
        return locks.redis_lock("busy", acquire_time=0, on_busy=on_busy)(body)

    async with RedisLock("busy", client=conn, prefix=f"{name}:"):
        assert [item async for item in decorated("skip")()] == []
        assert [item async for item in decorated(other)()] == [7]
        assert [item async for item in decorated(lambda: [1, 2])()] == [1, 2]
        with pytest.raises(LockTimeoutError):
            await anext(decorated("raise")())


async def test_lost_lease_raises_at_the_end_of_the_call(front, client, conn, locks, name):
    @locks.redis_lock("x")
    async def work():
        client.set(f"{name}:x", "external")

    with pytest.raises(LockLostError):
        await work()


async def test_error_names_the_missing_async_hook(front, conn, client):
    blocking_only = Locks(get_redis_connection=lambda: client)
    wrong = Locks(get_async_redis_connection=lambda: client)

    for locks, named in ((blocking_only, "get_async_redis_connection"), (wrong, "asyncio")):

        @locks.redis_lock("x")
        async def work():
            raise AssertionError("it must not run")

        with pytest.raises(ConfigurationError, match=named):
            await work()


def test_factory_is_called_once_for_each_event_loop(topology, name):
    made = []

    def factory():
        made.append(topology.async_client())
        return made[-1]

    locks = Locks(get_async_redis_connection=factory)

    async def use():
        for _ in range(2):
            async with locks.async_lock(name):
                pass
        await made[-1].aclose()

    asyncio.run(use())
    asyncio.run(use())

    assert len(made) == 2

"""How the loss of a lease ends a generator that holds it, and the task that reads that."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest
from support.cancellations import cancellations, counts_cancellations
from support.fronts import LEGACY
from support.leftovers import ASYNCIO, until
from support.losing import losing

from redis_lock_decorators import LockLostError, redis_lock

pytestmark = [
    pytest.mark.usefixtures("tidy"),
    pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio"),
]


@pytest.fixture
def lock_of(server):
    """Make a lock whose loss is detected soon, on the event loop of the test."""
    return lambda name, on_lost=None, **options: losing(ASYNCIO, server, name, on_lost, **options)


def test_loss_in_a_step_of_an_async_generator_reaches_its_consumer(server, direct, name):
    from redis.asyncio import Redis

    async def test():
        client = Redis(port=server.port)

        @redis_lock(name, client=client, expire=0.6)
        async def steps():
            yield 1
            direct.delete(f"sys:lock:{name}")
            await asyncio.sleep(60)
            yield 2

        with pytest.raises(LockLostError):
            async for step in steps():
                seen.append(step)

        assert cancellations() == 0
        await client.aclose()

    seen = []
    ASYNCIO.run(test())
    assert seen == [1]


def test_loss_between_steps_does_not_cancel_the_consumer(server, direct, name):
    from redis.asyncio import Redis

    async def test():
        client = Redis(port=server.port)

        @redis_lock(name, client=client, expire=0.6, on_lost=lambda *_: losses.append(True))
        async def steps():
            yield 1

        with pytest.raises(LockLostError):
            async for _ in steps():
                direct.delete(f"sys:lock:{name}")
                await until(ASYNCIO, lambda: losses)
                await asyncio.sleep(0.1)

        assert cancellations() == 0
        await client.aclose()

    losses = []
    ASYNCIO.run(test())


async def consume(steps, handle=contextlib.nullcontext):
    """Read an async generator in a task that its lock cancels, and close the generator."""
    async with contextlib.aclosing(steps):
        async for _ in steps:
            with handle():
                await asyncio.sleep(60)
            break


@contextlib.contextmanager
def cancelled_again():
    """Let other code cancel the task as it handles the cancellation by a loss."""
    try:
        yield
    except asyncio.CancelledError:
        asyncio.current_task().cancel()
        raise


@pytest.mark.parametrize("suppressed", [False, True])
def test_loss_in_an_undecorated_generator_reaches_who_closes_it(lock_of, direct, name, suppressed):
    async def steps():
        async with lock_of(name) as lease:
            direct.delete(lease.key)
            yield 1

    async def test():
        handle = partial(contextlib.suppress, asyncio.CancelledError)
        with pytest.raises(LockLostError):
            await consume(steps(), *([handle] if suppressed else []))

        assert cancellations() == 0
        await asyncio.sleep(0.01)  # the task can await again

    ASYNCIO.run(test())


@counts_cancellations
def test_other_cancellation_of_a_consumer_propagates_though_the_lease_is_lost(
    lock_of, direct, name
):
    async def steps():
        async with lock_of(name) as lease:
            direct.delete(lease.key)
            yield 1

    async def test():
        with pytest.raises(asyncio.CancelledError):
            await consume(steps(), cancelled_again)
        assert cancellations() == 1

    ASYNCIO.run(test())


def test_close_by_another_task_does_not_raise_the_loss(lock_of, direct, name):
    async def steps():
        async with lock_of(name) as lease:
            direct.delete(lease.key)
            yield 1

    async def test():
        generator = steps()
        consumer = asyncio.ensure_future(anext_of(generator))
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await generator.aclose()  # as the event loop does with a generator that nobody closes

    async def anext_of(generator):
        await generator.__anext__()
        await asyncio.sleep(60)

    ASYNCIO.run(test())

"""Bodies that run with a lease, and waits for conditions, for the tests of lease options."""

from __future__ import annotations

import time

from redis_lock_decorators._io.blocking_port import run
from support.fronts import do


def in_block(front, lock):
    async def hold(body):
        async with front.held(lock) as lease:
            return await body(lease)

    return hold


def in_function(front, decorate):
    if front.name == "blocking":

        @decorate
        def work(body):
            return run(body(front.package.current_lease()))

    else:

        @decorate
        async def work(body):
            return await body(front.package.current_lease())

    return lambda body: do(work(body))


async def until(front, is_so, seconds=10):
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not await do(is_so()):
        assert time.monotonic() < end, "the condition did not become true"
        await front.sleep(0.01)

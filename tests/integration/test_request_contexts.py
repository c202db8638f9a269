"""What the context of a request refers to is not kept after it: by connections, timers or tasks."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar

import pytest
from support.fronts import LEGACY
from support.leftovers import ASYNCIO, until

FRONTS = [ASYNCIO]
pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


class Request:
    """An object that the context of a task refers to."""


REQUEST: ContextVar[Request] = ContextVar("request")


async def handle(client, name, **options):
    """Try to acquire a lock, and do not release it; return a weak reference to the request."""
    request = Request()
    REQUEST.set(request)
    request.lease = await ASYNCIO.package.RedisLock(name, client=client, **options).acquire()
    return weakref.ref(request)


async def is_dropped(request):
    def is_gone():
        gc.collect()
        return request() is None

    await until(ASYNCIO, is_gone)
    return is_gone()


def ignore(lease, why):
    pass


@pytest.mark.parametrize("options", [{}, {"on_lost": ignore}], ids=["silent", "reporting"])
async def test_lease_that_only_its_context_refers_to_expires(front, server, direct, name, options):
    client = ASYNCIO.client(server)

    request = await asyncio.create_task(handle(client, name, expire=1, **options))

    assert await is_dropped(request)
    await until(ASYNCIO, lambda: not direct.exists(f"sys:lock:{name}"))
    assert not direct.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("strategy", ["queue", "poll", "cohort"])
async def test_waiter_that_gave_up_keeps_no_context(front, server, direct, name, strategy):
    client = ASYNCIO.client(server)
    async with ASYNCIO.package.RedisLock(name, client=client):
        work = handle(client, name, acquire_time=0.3, wait=strategy)
        request = await asyncio.create_task(work)

        assert await is_dropped(request)

"""When and how on_lost is called."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from support.fronts import LEGACY, do
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until
from support.losing import losing

from redis_lock_decorators import LockLostError
from redis_lock_decorators._io.background.worker import NAME

FRONTS = TIDY_FRONTS
asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

pytestmark = pytest.mark.usefixtures("tidy")


async def test_on_lost_is_called_once_with_the_lease_and_the_reason(front, server, direct, name):
    losses = []
    lock = losing(front, server, name, lambda *report: losses.append(report))

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            await until(front, lambda: lease.lost)
    await front.sleep(0.7)

    assert losses == [(lease, "its key is gone")]


async def test_on_lost_is_called_for_a_loss_found_by_the_release(front, server, direct, name):
    losses = []
    lock = losing(front, server, name, lambda *report: losses.append(report))

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
    await until(front, lambda: losses)
    await front.sleep(0.7)

    assert losses == [(lease, "its key is gone")]


@pytest.mark.parametrize("cancels", [True, False])
async def test_block_reports_a_loss_though_on_lost_has_released_the_lease(
    front, server, direct, name, cancels
):
    released = []

    async def release(lease, why):
        with contextlib.suppress(LockLostError):
            await do(lease.release())
        released.append(lease)

    lock = losing(front, server, name, release, cancel_on_lost=cancels)

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            try:
                await until(front, lambda: released)
            finally:
                await until(front, lambda: released)
    assert released == [lease]


async def test_on_lost_is_not_called_without_a_loss(front, server, name):
    losses = []

    async with front.held(losing(front, server, name, lambda *report: losses.append(report))):
        await front.sleep(0.8)
    await front.sleep(0.7)

    assert losses == []


async def test_slow_on_lost_delays_no_renewal(front, server, direct, name):
    may_end, began, threads = threading.Event(), [], []

    def slow(lease, why):
        threads.append(threading.current_thread().name)
        began.append(lease)
        may_end.wait(20)

    async def slow_task(lease, why):
        threads.append(threading.current_thread().name)
        began.append(lease)
        while not may_end.is_set():
            await asyncio.sleep(0.01)

    on_lost = slow if front is BLOCKING else slow_task
    lost = await do(losing(front, server, f"{name}:lost", on_lost).acquire())
    renewed = await do(losing(front, server, f"{name}:renewed", None).acquire())
    direct.delete(lost.key)
    await until(front, lambda: began)

    seen = renewed.deadline
    await until(front, lambda: time.monotonic() > seen + 0.5)
    still = not renewed.lost
    may_end.set()
    await do(renewed.release())

    assert still
    assert len(threads) == 1
    assert threads != [NAME]


async def test_failing_on_lost_is_logged_and_delays_no_renewal(front, server, direct, name, caplog):
    def failing(lease, why):
        raise ValueError("on_lost is broken")

    lost = await do(losing(front, server, f"{name}:lost", failing).acquire())
    renewed = await do(losing(front, server, f"{name}:renewed", None).acquire())
    direct.delete(lost.key)
    await until(front, lambda: "on_lost is broken" in caplog.text)

    seen = renewed.deadline
    await until(front, lambda: time.monotonic() > seen + 0.5)

    await do(renewed.release())
    assert any(record.levelname == "ERROR" for record in caplog.records)
    caplog.clear()  # the traceback refers to the client and would keep its connections open


@asyncio_only
def test_failing_async_on_lost_is_logged_as_an_error(server, direct, name, caplog):
    async def failing(lease, why):
        await asyncio.sleep(0)
        raise ValueError("on_lost is broken")

    async def test():
        caplog.set_level("INFO", "redis_lock_decorators")
        lost = await losing(ASYNCIO, server, name, failing).acquire()
        direct.delete(lost.key)
        await until(ASYNCIO, lambda: "on_lost is broken" in caplog.text)

    ASYNCIO.run(test())

    (level,) = [
        one.levelname
        for one in caplog.records
        if "on_lost is broken" in one.getMessage() + (one.exc_text or "")
    ]
    assert level == "ERROR"

"""Event loops other than asyncio's, and several event loops in several threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support import everyday
from support.fronts import LEGACY

from redis_lock_decorators import RedisLock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


def run_by_uvloop(main: Awaitable[Any]) -> Any:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is in the extra test")
    return uvloop.run(main)


RUNS = pytest.mark.parametrize("run", [asyncio.run, run_by_uvloop], ids=["asyncio", "uvloop"])


@RUNS
def test_tasks_hold_wait_renew_and_are_notified_of_losses(frail, name, run):
    run(everyday.in_tasks(frail.port, name))

    with frail.client() as direct:
        assert not direct.exists(f"sys:lock:{name}:renewed", f"sys:lock:{name}:lost")


@RUNS
def test_loops_in_several_threads_share_a_lock_with_threads(frail, name, run):
    """Loops start and end at the same time, each with its own clients and renewer."""
    from redis.asyncio import Redis

    inside: list[int] = []
    met: list[int] = []
    failed: list[BaseException] = []

    async def enter() -> None:
        async with Redis(port=frail.port) as client:
            for _ in range(3):
                async with AsyncRedisLock(name, client=client, acquire_time=60):
                    met.append(len(inside))
                    inside.append(1)
                    await asyncio.sleep(0.002)
                    inside.pop()

    def loops() -> None:
        for _ in range(3):
            run(enter())

    def blocking() -> None:
        client = frail.client()
        for _ in range(9):
            with RedisLock(name, client=client, acquire_time=60):
                met.append(len(inside))
                inside.append(1)
                inside.pop()

    in_threads([loops] * 4 + [blocking] * 2, failed)

    assert failed == []
    assert met == [0] * (4 * 9 + 2 * 9)


def in_threads(functions: list[Callable[[], None]], failed: list[BaseException]) -> None:
    """Run functions concurrently, each in a thread."""

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

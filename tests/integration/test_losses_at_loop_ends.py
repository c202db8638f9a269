"""A loss is reported though the program ends while the release waits for its reply.

The key is deleted in the block, and the server then replies late. While the release waits, the
program cancels its task, or all tasks, or ends: ``asyncio.run`` cancels the remaining tasks then,
also those of the package.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from support.distance import distant

from redis_lock_decorators import Locks, events

aioredis = pytest.importorskip("redis.asyncio")

#: A loop may be closed while the package waits for a late reply of a silent server.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

Body = Callable[[], Awaitable[None]]
#: For how many seconds the server is silent; shorter than the wait at the end of a program.
PAUSE = 0.3
#: Longer than a round trip limit.
LONG_PAUSE = 1.4
#: Seconds in which the release begins.
BEGUN = 0.05


async def block(locks: Locks, name: str, options: dict[str, Any], body: Body) -> None:
    async with locks.async_lock(name, **options):
        await body()


async def by_hand(locks: Locks, name: str, options: dict[str, Any], body: Body) -> None:
    lease = await locks.async_lock(name, **options).acquire()
    try:
        await body()
    finally:
        await lease.release()


async def function(locks: Locks, name: str, options: dict[str, Any], body: Body) -> None:
    @locks.redis_lock(name, **options)
    async def work() -> None:
        await body()

    await work()


async def generator(locks: Locks, name: str, options: dict[str, Any], body: Body) -> None:
    @locks.redis_lock(name, **options)
    async def steps() -> Any:
        await body()
        yield 1

    async with contextlib.aclosing(steps()) as running:
        async for _ in running:
            pass


async def once(task: asyncio.Task[None]) -> None:
    """Cancel the task, and wait for it."""
    task.cancel()
    await asyncio.wait([task])


async def twice(task: asyncio.Task[None]) -> None:
    """Cancel all tasks, twice."""
    for _ in range(2):
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()
        await asyncio.sleep(BEGUN)
    await asyncio.wait([task])


async def by_loop_end(task: asyncio.Task[None]) -> None:
    """Return: the end of ``asyncio.run`` cancels all tasks."""


async def and_by_loop_end(task: asyncio.Task[None]) -> None:
    """Cancel the task, and return."""
    task.cancel()


def run_by_uvloop(main: Awaitable[Any]) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is in the extra test")
    uvloop.run(main)


FORMS = [block, by_hand, function, generator]
ENDS = [once, twice, by_loop_end, and_by_loop_end]
METHODS = ["script", "transaction", "native"]


class Scene:
    """A program that ends while a release waits for its reply."""

    def __init__(self, server: Any, name: str, method: str) -> None:
        self._server, self._name, self.client = server, name, server.client()
        self.calls: list[str] = []
        self.ends: list[events.LockEvent] = []
        self._options = {
            "expire": 60,
            "release_method": method,
            "on_lost": lambda lease, why: self.calls.append(why),
            "hooks": [self._note],
        }

    def _note(self, event: events.LockEvent) -> None:
        if isinstance(event, (events.Released, events.Lost)):
            self.ends.append(event)

    async def run(self, form: Any, end: Any, is_lost: bool, pause: float = PAUSE) -> None:
        # The package closes clients of a hook at the end of the event loop if this still exists.
        locks = self.locks = Locks(
            get_async_redis_connection=partial(aioredis.Redis.from_url, self._server.url)
        )
        is_paused = asyncio.Event()

        async def body() -> None:
            if is_lost:
                self.client.delete(f"sys:lock:{self._name}")
            self.client.client_pause(int(pause * 1000), all=False)
            is_paused.set()

        async with locks.async_lock(f"{self._name}:before"):
            pass
        task = asyncio.ensure_future(form(locks, self._name, self._options, body))
        await is_paused.wait()
        await asyncio.wait([task], timeout=BEGUN)
        assert not task.done()
        await end(task)

    def end_of_lease(self) -> events.LockEvent:
        by = time.monotonic() + 10
        while not self.ends and time.monotonic() < by:
            time.sleep(0.01)
        (found,) = self.ends
        return found


@pytest.fixture(autouse=True)
def collected():
    """No connection of a closed loop is left to the tests of other files."""
    yield
    gc.collect()


@pytest.fixture
def scene(frail: Any, name: str) -> Callable[[str], Scene]:
    return lambda method: Scene(frail, name, method)


@pytest.fixture(scope="module")
def frail(tmp_path_factory: Any) -> Any:
    """One server for all: its pauses end with each test."""
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_loss_is_reported(scene, form, method, end):
    lost = scene(method)

    asyncio.run(lost.run(form, end, is_lost=True))

    assert lost.calls == ["its key is gone"]
    assert isinstance(lost.end_of_lease(), events.Lost)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", FORMS)
def test_loss_is_reported_by_uvloop(scene, form, end):
    lost = scene("script")

    run_by_uvloop(lost.run(form, end, is_lost=True))

    assert lost.calls == ["its key is gone"]
    assert isinstance(lost.end_of_lease(), events.Lost)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_no_loss_is_reported_without_one(scene, form, method, end, caplog):
    kept = scene(method)

    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        asyncio.run(kept.run(form, end, is_lost=False))

    assert kept.calls == []
    assert isinstance(kept.end_of_lease(), events.Released)
    assert not kept.client.exists(f"sys:lock:{kept._name}")
    assert caplog.messages == []


@pytest.mark.parametrize("end", [once, twice])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", [block, by_hand])
def test_loss_is_reported_though_the_server_is_silent_for_long(scene, form, method, end):
    """Longer than one round trip limit, after which the release is sent again."""
    lost = scene(method)

    asyncio.run(lost.run(form, end, is_lost=True, pause=LONG_PAUSE))

    assert lost.calls == ["its key is gone"]
    assert isinstance(lost.end_of_lease(), events.Lost)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", [block, by_hand])
def test_no_loss_is_reported_though_the_server_is_silent_for_long(scene, form, method):
    kept = scene(method)

    asyncio.run(kept.run(form, twice, is_lost=False, pause=LONG_PAUSE))

    assert kept.calls == []
    assert isinstance(kept.end_of_lease(), events.Released)
    assert not kept.client.exists(f"sys:lock:{kept._name}")


PROGRAM = """
import asyncio, sys, time
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis_lock_decorators.asyncio import RedisLock

url, name = sys.argv[1:]

async def work(paused):
    client = AsyncRedis.from_url(url)
    hook = lambda event: print(type(event).__name__, getattr(event, "error", ""), flush=True)
    async with RedisLock(name, client=client, hooks=[hook], on_lost=print):
        Redis.from_url(url).client_pause(3000, all=False)
        paused.set()

async def main():
    task = asyncio.ensure_future(work(paused := asyncio.Event()))
    await paused.wait()
    await asyncio.sleep(0.05)
    task.cancel()

asyncio.run(main())
time.sleep(0.3)
"""


def test_release_without_a_reply_is_reported_as_failed(frail, name):
    """In a process of its own: the event loop is closed while connections are in use."""
    command = [sys.executable, "-c", PROGRAM, frail.url, name]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["Acquiring", "Acquired", "Released", "TimeoutError"]
    assert "whether the lock was lost before is not known" in done.stderr


async def cancel_and_return(tasks: list[asyncio.Task[None]]) -> None:
    """The end of the event loop cancels all tasks again, also those that make their first step."""
    for task in tasks:
        task.cancel()


async def leave_to_group(tasks: list[asyncio.Task[None]]) -> None:
    """The end of the event loop cancels a task group, which cancels its tasks again and again."""
    anyio = pytest.importorskip("anyio", reason="anyio is in the extra test")

    async def supervise() -> None:
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(asyncio.wait_for, task, None)

    await in_background(supervise())


async def leave_to_supervisor(tasks: list[asyncio.Task[None]]) -> None:
    """The end of the event loop cancels a task that cancels others a little later."""

    async def supervise() -> None:
        try:
            await asyncio.wait(tasks)
        finally:
            await asyncio.wait(tasks, timeout=0.2)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    await in_background(supervise())


async def in_background(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait([asyncio.ensure_future(work)], timeout=BEGUN)


@pytest.mark.parametrize("end", [cancel_and_return, leave_to_group, leave_to_supervisor])
@pytest.mark.parametrize("method", ["script", "transaction"])
def test_losses_are_reported_though_the_holders_leave_before_they_are_known(
    server, name, method, end
):
    """The locks are released only after the end of the event loop has listed its tasks."""
    calls: list[str] = []

    async def main(url: str) -> None:
        locks = Locks(get_async_redis_connection=partial(aioredis.Redis.from_url, url))
        inside: list[int] = []

        async def work(number: int) -> None:
            lost = locks.async_lock(
                f"{name}:{number}",
                release_method=method,
                expire=60,
                on_lost=lambda lease, why: calls.append(why),
            )
            async with lost:
                inside.append(number)
                await asyncio.sleep(60)

        tasks = [asyncio.ensure_future(work(number)) for number in range(4)]
        while len(inside) < len(tasks):
            await asyncio.sleep(0.01)
        server.client().delete(f"sys:lock:{name}:0", f"sys:lock:{name}:1")
        await end(tasks)

    with distant(server.port, 0.4) as address:
        asyncio.run(main(f"redis://{address.host}:{address.port}/0"))

    assert calls == ["its key is gone"] * 2
    assert server.client().keys(f"sys:lock:{name}:?") == []


@pytest.mark.parametrize("method", METHODS)
def test_release_by_several_requests_is_completed_at_the_end_of_the_loop(server, name, method):
    """Each request takes 0.4 s, so all of them longer than a cancelled task waits."""
    calls: list[str] = []

    async def main(url: str) -> None:
        locks = Locks(get_async_redis_connection=partial(aioredis.Redis.from_url, url))
        is_inside = asyncio.Event()

        async def work() -> None:
            lost = locks.async_lock(
                name, release_method=method, on_lost=lambda lease, why: calls.append(why)
            )
            async with lost, locks.async_lock(f"{name}:kept", release_method=method):
                server.client().delete(f"sys:lock:{name}")
                is_inside.set()

        task = asyncio.ensure_future(work())
        await is_inside.wait()
        await asyncio.sleep(BEGUN)
        task.cancel()
        await asyncio.sleep(0.2)

    with distant(server.port, 0.4) as address:
        asyncio.run(main(f"redis://{address.host}:{address.port}/0"))

    assert calls == ["its key is gone"]
    assert not server.client().exists(f"sys:lock:{name}:kept")

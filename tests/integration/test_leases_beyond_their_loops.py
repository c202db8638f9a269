"""A lease whose event loop ends is reported as lost; on other loops it is refused."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from redis_lock_decorators import LockError, LockLostError, events
from redis_lock_decorators._io.background.hook_calls import flush
from redis_lock_decorators.asyncio import RedisLock

aioredis = pytest.importorskip("redis.asyncio")

#: The clients of these tests are not closed.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

Run = Callable[[Coroutine[Any, Any, Any]], Any]
WHY = "its event loop ended before its release"


class Reports:
    """What was reported about the locks of a test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reasons: list[str] = []
        self.events: list[Any] = []

    def lock(self, name: str, **options: Any) -> RedisLock:
        client = aioredis.Redis(port=self.port)
        return RedisLock(name, client=client, hooks=[self.events.append], **options)

    def on_lost(self, lease: Any, why: str) -> None:
        self.reasons.append(why)

    async def on_lost_later(self, lease: Any, why: str) -> None:
        await asyncio.sleep(0.01)
        self.reasons.append(why)

    @property
    def losses(self) -> list[str]:
        assert flush(10)
        return [event.why for event in self.events if isinstance(event, events.Lost)]


@pytest.fixture
def reports(server: Any) -> Reports:
    return Reports(server.port)


@pytest.fixture
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def by_hand(work: Coroutine[Any, Any, Any]) -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.mark.parametrize("run", [asyncio.run, by_hand])
@pytest.mark.parametrize("kind", ["on_lost", "on_lost_later"])
def test_lease_that_is_left_at_the_end_of_its_loop_is_reported_once(
    reports: Reports, server: Any, name: str, caplog: pytest.LogCaptureFixture, run: Run, kind: str
) -> None:
    on_lost = getattr(reports, kind)

    with caplog.at_level(logging.INFO, "redis_lock_decorators"):
        lease = run(reports.lock(name, on_lost=on_lost).acquire())

    assert reports.reasons == [WHY]
    assert reports.losses == [WHY]
    assert [record.message for record in caplog.records if "no longer renewed" in record.message]
    assert lease.lost
    for use in (lease.check, partial(run, lease.extend()), partial(run, lease.release())):
        with pytest.raises(LockLostError, match=WHY):
            use()
    assert reports.reasons == [WHY]
    assert reports.losses == [WHY]
    assert server.client().get(lease.key) is not None


def test_lease_is_lost_if_its_loop_is_closed_without_notice(
    reports: Reports, server: Any, name: str
) -> None:
    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(reports.lock(name, on_lost=reports.on_lost).acquire())
    assert not lease.lost
    loop.close()

    assert lease.lost
    with pytest.raises(LockLostError):
        lease.check()
    with pytest.raises(LockLostError, match=WHY):
        asyncio.run(lease.release())
    assert reports.losses == [WHY]


def test_leases_that_generators_release_at_the_end_of_their_loop_are_not_lost(
    reports: Reports, server: Any, name: str
) -> None:
    kept: list[Any] = []

    async def in_a_block() -> Any:
        async with reports.lock(f"{name}:block", on_lost=reports.on_lost):
            yield

    async def by_hand() -> Any:
        lease = await reports.lock(f"{name}:lease", on_lost=reports.on_lost).acquire()
        try:
            yield
        finally:
            await asyncio.sleep(1.2)  # longer than a request may take
            await lease.release()

    async def main() -> None:
        for generator in (in_a_block(), by_hand()):
            kept.append(generator)
            await generator.__anext__()

    asyncio.run(main())

    assert reports.reasons == []
    assert reports.losses == []
    assert server.client().keys(f"*{name}*") == []


def test_released_lease_is_not_reported_at_the_end_of_its_loop(
    reports: Reports, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Any:
        lease = await reports.lock(name, on_lost=reports.on_lost).acquire()
        await lease.release()
        return lease

    lease = asyncio.run(main())

    asyncio.run(lease.release())  # a second call does nothing, anywhere
    assert reports.reasons == reports.losses == []
    assert not lease.lost
    assert caplog.records == []


@pytest.mark.parametrize("method", ["release", "extend", "owned", "__aenter__"])
def test_lease_is_refused_on_another_loop_and_still_held(
    reports: Reports,
    server: Any,
    name: str,
    other_loop: asyncio.AbstractEventLoop,
    method: str,
) -> None:
    there = partial(asyncio.run_coroutine_threadsafe, loop=other_loop)
    lease = there(reports.lock(name).acquire()).result(10)

    with pytest.raises(LockError, match=f"event loop of the lease of lock '{name}' is another one"):
        asyncio.run(getattr(lease, method)())

    assert server.client().get(lease.key).decode() == lease.identifier
    lease.check()
    there(lease.release()).result(10)
    assert server.client().get(lease.key) is None
    assert reports.losses == []


def test_block_that_is_left_on_another_loop_releases_its_lock_and_says_so(
    reports: Reports, server: Any, name: str, other_loop: asyncio.AbstractEventLoop
) -> None:
    lock = reports.lock(name)
    lease = asyncio.run_coroutine_threadsafe(lock.__aenter__(), other_loop).result(10)

    with pytest.raises(LockError, match="is another one"):
        asyncio.run(lock.__aexit__(None, None, None))

    for _ in range(100):
        if server.client().get(lease.key) is None:
            break
        threading.Event().wait(0.05)
    assert server.client().get(lease.key) is None

"""A forked child goes on with an event loop that its parent has used, and that was not running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

import redis.asyncio
from support.batching import limit_batches
from support.workers import in_child

from redis_lock_decorators import LockNotOwnedError, Locks
from redis_lock_decorators.asyncio import Lease, RedisLock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # of forks with threads
]

#: Seconds of a lease, and for how long the children run: several renewals, and its end.
EXPIRE = 0.9
LONGER = 1.4

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs coroutines on one event loop, which is not running in between."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture
def client(run: Run, server: Any) -> Iterator[Any]:
    client = redis.asyncio.Redis(host=server.host, port=server.port)
    yield client
    run(client.aclose() if hasattr(client, "aclose") else client.close())


@pytest.fixture(params=["client", "factory"])
def new_lock(request: pytest.FixtureRequest, client: Any) -> Callable[..., RedisLock]:
    """Makes locks that share a client, or a function that makes one for each process and loop."""
    if request.param == "client":
        return Locks(client=client).async_lock
    kind, parameters = type(client), client.connection_pool.connection_kwargs
    connect = partial(kind, host=parameters["host"], port=parameters["port"])
    return Locks(get_async_redis_connection=connect).async_lock


def test_child_does_not_renew_its_parents_lease(
    run: Run, new_lock: Callable[..., RedisLock], direct: Any, name: str
) -> None:
    losses: list[str] = []
    lock = new_lock(name, expire=EXPIRE, on_lost=lambda lease, why: losses.append(why))
    lease = run(lock.acquire())

    def go_on() -> object:
        run(asyncio.sleep(LONGER))
        return losses

    assert in_child(go_on) == "[]"
    assert not direct.exists(lease.key)


def test_child_reports_no_loss_after_its_parents_release(
    run: Run, new_lock: Callable[..., RedisLock], direct: Any, name: str
) -> None:
    losses: list[str] = []
    lock = new_lock(name, expire=EXPIRE, on_lost=lambda lease, why: losses.append(why))
    lease = run(lock.acquire())
    run(asyncio.sleep(0.4))  # it was renewed
    direct.delete(lease.key)

    def go_on() -> object:
        run(asyncio.sleep(LONGER))
        return losses

    assert in_child(go_on) == "[]"


def test_parent_and_children_renew_their_own_leases_on_copies_of_a_loop(
    run: Run,
    new_lock: Callable[..., RedisLock],
    direct: Any,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def work(own: str) -> None:
        """Hold a lock for several renewals, and enter another one by turns with the others."""
        async with new_lock(own, expire=EXPIRE) as held:
            end = time.monotonic() + LONGER
            while time.monotonic() < end:
                async with new_lock(f"{name}:shared", acquire_time=10, expire=5):
                    assert direct.incr(f"{name}:inside") == 1
                    await asyncio.sleep(0.01)
                    direct.decr(f"{name}:inside")
                await asyncio.sleep(0.01)
            held.check()

    lease = run(new_lock(name, expire=EXPIRE).acquire())
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=lambda own: run(work(own)), args=(f"{name}:{number}",))
        for number in range(2)
    ]
    for child in children:
        child.start()
    run(work(f"{name}:parent"))
    for child in children:
        child.join(60)

    assert [child.exitcode for child in children] == [0, 0]
    assert not lease.lost
    run(lease.release())
    assert caplog.messages == []


def test_child_reads_no_replies_of_its_parent(
    run: Run, new_lock: Callable[..., RedisLock], name: str
) -> None:
    lease = run(new_lock(name, expire=30).acquire())
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: run(asyncio.sleep(LONGER)))

    async def longest_request() -> float:
        longest = 0.0
        for _ in range(100):
            began = time.monotonic()
            assert await lease.owned()
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.005)
        return longest

    child.start()
    longest = run(longest_request())
    child.join(60)

    assert longest < 0.4
    run(lease.release())


@pytest.mark.parametrize("wait", ["queue", "poll", "cohort"])
def test_copy_of_a_waiting_task_does_not_enter(
    run: Run, client: Any, direct: Any, name: str, wait: Any
) -> None:
    entered: list[int] = []

    async def wait_in_task() -> Any:
        async def enter() -> None:
            async with RedisLock(name, client=client, acquire_time=10, wait=wait, expire=EXPIRE):
                entered.append(os.getpid())

        lease = await RedisLock(name, client=client, expire=30).acquire()
        task = asyncio.ensure_future(enter())
        await asyncio.sleep(0.3)
        return lease, task

    lease, task = run(wait_in_task())

    async def go_on() -> object:
        direct.delete(lease.key)
        await asyncio.sleep(LONGER)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, LockNotOwnedError):
            await task
        return entered

    assert in_child(lambda: run(go_on())) == "[]"
    run(asyncio.wait_for(task, 10))
    assert entered == [os.getpid()]


@pytest.mark.parametrize("is_forced", [False, True])
def test_child_does_not_send_what_its_parent_has_queued(
    run: Run, client: Any, direct: Any, name: str, is_forced: bool, monkeypatch: Any
) -> None:
    limit_batches(1, monkeypatch)
    locks = [RedisLock(f"{name}:{number}", client=client, expire=30) for number in range(5)]
    keys = [f"sys:lock:{name}:{number}" for number in range(5)]

    async def queue_releases() -> list[asyncio.Future[Any]]:
        leases = [await lock.acquire() for lock in locks]
        ends = [lock.force_release() for lock in locks] if is_forced else map(Lease.release, leases)
        tasks = [asyncio.ensure_future(end) for end in ends]
        await tasks[0]
        direct.client_pause(300)  # one is under way, the others wait
        return tasks

    tasks = run(queue_releases())

    in_child(lambda: run(asyncio.sleep(1)))
    assert direct.exists(*keys) >= 2

    run(asyncio.wait_for(asyncio.gather(*tasks), 20))
    assert direct.exists(*keys) == 0


def test_parent_is_not_delayed_by_a_child_that_is_forked_on_another_running_loop(
    run: Run, client: Any, name: str
) -> None:
    lock = RedisLock(name, client=client)

    async def use() -> float:
        began = time.monotonic()
        async with lock:
            pass
        return time.monotonic() - began

    async def fork() -> int:
        pid = os.fork()
        if not pid:
            asyncio.events._set_running_loop(None)
            run(asyncio.sleep(1))
            os._exit(0)
        return pid

    run(use())
    pid = asyncio.run(fork())
    longest = max(run(use()) for _ in range(50))
    os.waitpid(pid, 0)

    assert longest < 1


def test_lease_of_the_parent_is_refused_in_the_child(
    run: Run, new_lock: Callable[..., RedisLock], direct: Any, name: str
) -> None:
    lease = run(new_lock(name, expire=EXPIRE).acquire())

    async def use() -> object:
        refused = []
        for call in (lease.extend, lease.release):
            with pytest.raises(LockNotOwnedError) as caught:
                await call()
            refused.append(type(caught.value).__name__)
        return lease.lost, await lease.owned(), refused

    assert in_child(lambda: run(use())) == f"(True, False, {['LockNotOwnedError'] * 2})"
    assert run(lease.owned())
    run(lease.release())


def test_clients_of_the_parent_survive_the_end_of_the_loop_in_a_child(
    run: Run, new_lock: Callable[..., RedisLock], name: str
) -> None:
    lease = run(new_lock(name, expire=5).acquire())

    async def end_loop() -> None:
        await asyncio.get_running_loop().shutdown_asyncgens()

    assert in_child(lambda: run(end_loop())) == "None"
    began = time.monotonic()
    assert run(lease.owned())
    run(lease.release())
    assert time.monotonic() - began < 0.4

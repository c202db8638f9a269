"""Leases are renewed while their holders live, with few requests, threads and tasks."""

from __future__ import annotations

import gc
import threading
import time

import pytest
from support.fronts import do
from support.leftovers import (
    ASYNCIO,
    BLOCKING,
    TIDY_FRONTS,
    connections,
    other_tasks,
    own_threads,
    until,
)

from redis_lock_decorators import LockLostError

FRONTS = TIDY_FRONTS

pytestmark = pytest.mark.usefixtures("tidy")


def scripts_run(direct):
    """The number of scripts that clients have run."""
    counts = direct.info("commandstats")
    return sum(counts.get(f"cmdstat_{word}", {"calls": 0})["calls"] for word in ("evalsha", "eval"))


async def test_lock_is_held_longer_than_its_expire(front, server, rival, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=3)

    async with front.held(lock) as lease:
        rival.wants(server, name)
        await front.sleep(5)
        lease.check()
        left = time.monotonic()

    assert rival.entered() >= left


async def test_thousands_of_leases_are_renewed_with_few_requests(front, server, direct, name):
    client, before = front.client(server), connections(direct)
    locks = [
        front.package.RedisLock(f"{name}:{number}", client=client, expire=3)
        for number in range(3_000)
    ]
    leases = [await do(lock.acquire()) for lock in locks]
    started, requests, tasks = time.monotonic(), scripts_run(direct), [0]

    while time.monotonic() < started + 4.5:
        await front.sleep(0.05)
        if front is ASYNCIO:
            tasks.append(len(other_tasks()))

    assert scripts_run(direct) - requests < 300
    awake = [name for name in own_threads() if not name.endswith("spare")]
    assert awake == (["redis_lock_decorators"] if front is BLOCKING else [])
    assert len(connections(direct) - before) <= (2 if front is BLOCKING else 1)
    assert max(tasks) < 50  # six scripts renew all leases
    assert not any(lease.lost for lease in leases)
    stored = direct.mget([lease.key for lease in leases])
    assert [value.decode() for value in stored] == [lease.identifier for lease in leases]
    for lease in leases:
        await do(lease.release())


async def expires(front, direct, key, identifier, expire):
    """Whether a key is not renewed: it is gone when its last lease is over."""
    assert direct.get(key) == identifier.encode()
    await front.sleep(expire + 0.5)
    return not direct.exists(key)


async def test_released_lease_is_no_longer_renewed(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6)
    async with front.held(lock) as lease:
        await front.sleep(0.5)

    direct.set(lease.key, lease.identifier, px=600)

    assert await expires(front, direct, lease.key, lease.identifier, 0.6)


async def test_garbage_collected_lease_is_no_longer_renewed(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.9)
    lease = await do(lock.acquire())
    await front.sleep(0.8)
    key_and_identifier = lease.key, lease.identifier

    del lease
    gc.collect()

    assert await expires(front, direct, *key_and_identifier, 0.9)


def test_lease_of_an_ended_thread_is_no_longer_renewed(server, direct, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client(), expire=0.9)
    thread = threading.Thread(target=lambda: (lock.acquire(), time.sleep(0.8)))
    thread.start()
    thread.join()

    gc.collect()

    assert direct.exists(f"sys:lock:{name}")
    time.sleep(1.4)
    assert not direct.exists(f"sys:lock:{name}")


async def test_max_hold_ends_the_lease_of_a_body_that_hangs(front, server, rival, name):
    losses = []
    lock = front.package.RedisLock(
        name,
        client=front.client(server),
        expire=0.6,
        max_hold=1.2,
        on_lost=lambda *report: losses.append(report),
    )
    started = time.monotonic()

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            rival.wants(server, name)
            await until(front, lambda: lease.lost)

    assert lease.deadline - 0.02 <= rival.entered()  # a loss may be reported slightly early
    assert 0.6 < lease.deadline - started <= 1.25
    await until(front, lambda: losses)
    assert "max_hold" in losses[0][1]


async def test_lease_without_auto_renew_ends_at_its_first_deadline(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6, auto_renew=False)
    lease = await do(lock.acquire())
    first = lease.deadline

    await until(front, lambda: lease.lost)

    assert lease.deadline == first
    await until(front, lambda: not direct.exists(lease.key))

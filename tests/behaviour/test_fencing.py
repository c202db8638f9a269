"""fencing: numbers that grow with each acquisition."""

from __future__ import annotations

import itertools

import pytest
from support.blocks import elsewhere
from support.fronts import do
from support.lease_forms import until

import redis_lock_decorators
from redis_lock_decorators import ConfigurationError
from redis_lock_decorators._rules.keys import companion

MINUTE_MS = 60_000


@pytest.fixture
def make(front, conn, name):
    """A lock on the test's name."""

    def lock(lock_name=name, **options):
        return front.package.RedisLock(lock_name, client=conn, **options)

    return lock


def fence_key(name):
    return companion(f"sys:lock:{name}".encode(), b"fence")


async def fence_of(front, lock):
    async with front.held(lock) as lease:
        return lease.fence


async def test_fence_grows_with_every_acquisition(front, client, make):
    lock = make(fencing=True)

    fences = [await fence_of(front, lock) for _ in range(5)]

    assert all(type(fence) is int and 0 < fence < 2**53 for fence in fences)
    assert all(one < other for one, other in itertools.pairwise(fences))


async def test_fence_grows_across_fronts(front, client, name, make):
    blocking = redis_lock_decorators.RedisLock(name, client=client, fencing=True)
    fences = []

    for _ in range(3):
        fences.append(await fence_of(front, make(fencing=True)))
        with blocking as lease:
            fences.append(lease.fence)

    assert all(one < other for one, other in itertools.pairwise(fences))


async def test_fence_grows_after_a_holder_that_never_released(front, client, make):
    lock = make(fencing=True, expire=0.05, auto_renew=False)
    dead = await elsewhere(front, lock.acquire)

    next_one = await fence_of(front, make(fencing=True))

    assert next_one > dead.fence


async def test_fence_grows_though_the_server_lost_all_data(front, client, make, topology):
    if topology.name not in ("valkey", "valkey-decoded", "redis"):
        pytest.skip("only a single server started by the tests is emptied")
    lock = make(fencing=True)
    before = await fence_of(front, lock)
    client.flushall()

    assert await fence_of(front, lock) > before


async def test_fence_grows_though_the_server_clock_is_behind(front, client, name, make):
    client.hset(fence_key(name), "fence", 2**52)

    fences = [await fence_of(front, make(fencing=True)) for _ in range(2)]

    assert fences == [2**52 + 1, 2**52 + 2]


async def test_last_fence_is_kept_for_a_minute(front, client, name, make):
    await fence_of(front, make(fencing=True))

    assert MINUTE_MS / 2 < client.pttl(fence_key(name)) <= MINUTE_MS


async def test_without_fencing_there_is_no_fence(front, client, name, make):
    async with front.held(make()) as lease:
        assert lease.fence is None

    assert not client.exists(fence_key(name))


async def test_busy_lock_does_not_consume_a_fence(front, client, name, make):
    lock = make(fencing=True)
    async with front.held(lock) as lease:
        assert await elsewhere(front, lambda: lock.acquire(blocking=False)) is None

        stored = client.hget(fence_key(name), "fence")

    assert int(stored) == lease.fence


async def test_extension_and_renewal_keep_the_fence(front, client, make):
    async with front.held(make(fencing=True, expire=0.4)) as lease:
        fence, first = lease.fence, lease.deadline
        await do(lease.extend())
        await until(front, lambda: lease.deadline > first + 0.15)

        assert lease.fence == fence


async def test_names_of_one_slot_share_one_fence(front, client, name, make):
    one, other = f"{{{name}}}:a", f"{{{name}}}:b"

    fences = [
        await fence_of(front, make(names, fencing=True))
        for names in (one, [one, other], other, [other, one], one)
    ]

    assert all(type(fence) is int for fence in fences)
    assert all(before < after for before, after in itertools.pairwise(fences))


async def test_fence_of_several_names_exceeds_the_last_of_each(front, client, name, make):
    one, other = f"{{{name}}}:a", f"{{{name}}}:b"
    client.hset(fence_key(one), "fence", 2**52)
    client.hset(fence_key(other), "fence", 2**52 + 7)

    both = await fence_of(front, make([one, other], fencing=True))

    assert both == 2**52 + 8
    assert await fence_of(front, make(one, fencing=True)) == 2**52 + 9


async def test_fence_over_several_slots_needs_a_single_server(front, client, name, make, topology):
    names = [f"{name}:a", f"{name}:b"]
    lock = make(names, fencing=True)

    if not topology.is_cluster:
        assert isinstance(await fence_of(front, lock), int)
        return
    with pytest.raises(ConfigurationError, match=r"different slots of the cluster.*hash tag"):
        await fence_of(front, lock)

    assert not any(client.exists(f"sys:lock:{each}") for each in names)


async def test_fencing_adds_no_round_trip(front, proxy, name):
    lock = front.package.RedisLock(name, client=front.client(proxy), fencing=True)
    await fence_of(front, lock)  # connect and load the scripts
    proxy.clear()

    lease = await do(lock.acquire())

    assert [command[0] for command in proxy.commands] == [b"EVALSHA"]
    await do(lease.release())


async def test_lost_reply_with_a_fence_is_requested_again(front, proxy, direct, name):
    lock = front.package.RedisLock(name, client=front.client(proxy), fencing=True)
    await fence_of(front, lock)
    proxy.drop_reply(lambda command: command[0].startswith(b"EVAL"))

    async with front.held(lock) as lease:
        assert lease.fence == int(direct.hget(fence_key(name), "fence"))
        assert direct.get(f"sys:lock:{name}").decode() == lease.identifier


async def test_late_duplicate_request_changes_no_fence(front, proxy, direct, name):
    lock = front.package.RedisLock(name, client=front.client(proxy), fencing=True)
    await fence_of(front, lock)
    proxy.clear()

    async with front.held(lock) as lease:
        (request,) = proxy.commands
        direct.execute_command(*request)

        assert int(direct.hget(fence_key(name), "fence")) == lease.fence

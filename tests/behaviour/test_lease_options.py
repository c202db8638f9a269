"""Options of a lease: auto_renew, max_hold, min_hold, on_lost, fencing and replicas."""

from __future__ import annotations

import itertools
import logging
import time

import pytest
from support.fronts import do, wrap

import redis_lock_decorators
from redis_lock_decorators import (
    ConfigurationError,
    LockLostError,
    LockNotOwnedError,
    Locks,
    LockTimeoutError,
    LockUnconfirmedError,
    configure,
    redis_lock,
)
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._shared.settings import DEFAULT, Settings
from redis_lock_decorators.testing import LocalServer

MINUTE = 60_000
#: The first sync of a replica must not wait for more replicas to join it.
SYNC_AT_ONCE = ("--repl-diskless-sync-delay", "0")


@pytest.fixture
def make(front, conn, name):
    """A lock on the test's name."""

    def lock(lock_name=name, **options):
        return front.package.RedisLock(lock_name, client=conn, **options)

    return lock


@pytest.fixture(autouse=True)
def fresh_settings(monkeypatch):
    """The module-level names as in a new process."""
    for attribute, value in vars(Settings()).items():
        monkeypatch.setattr(DEFAULT, attribute, value)


@pytest.fixture(params=["RedisLock", "@redis_lock", "Locks", "Locks.redis_lock", "configure"])
def hold(front, conn, name, request):
    """Runs a body with the lease of a lock whose options are given in one of the forms."""

    async def hold(body, **options):
        return await holder(front, conn, name, request.param, options)(body)

    return hold


def holder(front, conn, name, way, options):
    hook = "get_redis_connection" if front.name == "blocking" else "get_async_redis_connection"
    project = {hook: lambda: conn, **options}
    if way == "RedisLock":
        return in_block(front, front.package.RedisLock(name, client=conn, **options))
    if way == "@redis_lock":
        return in_function(front, redis_lock(name, client=conn, **options))
    if way == "configure":
        lock = front.package.RedisLock(name)
        configure(**project)
        return in_block(front, lock)
    locks = Locks(**project)
    if way == "Locks.redis_lock":
        return in_function(front, locks.redis_lock(name))
    make = locks.lock if front.name == "blocking" else locks.async_lock
    return in_block(front, make(name))


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
        assert time.monotonic() < end, "it did not come"
        await front.sleep(0.01)


async def elsewhere(front, work):
    """The result of a call in another thread or task."""

    async def call():
        return await do(work())

    (result,) = await front.elsewhere(call)
    return result


def fence_key(name):
    return companion(f"sys:lock:{name}".encode(), b"fence")


async def fence_of(front, lock):
    async with front.held(lock) as lease:
        return lease.fence


# Every form of giving options to a lock


async def test_every_form_accepts_hold_times_and_fencing(front, client, name, hold):
    async def observe(lease):
        return lease.expire, lease.remaining(), lease.fence

    found = await hold(observe, expire=90, max_hold=70, min_hold=50, fencing=True)

    expire, remaining, fence = found
    assert expire == 70
    assert 60 < remaining < 70
    assert isinstance(fence, int)
    assert 40_000 < client.pttl(f"sys:lock:{name}") <= 50_000
    client.delete(f"sys:lock:{name}")


async def test_every_form_accepts_auto_renew_and_on_lost(front, client, hold):
    lost = []

    async def outstay(lease):
        await until(front, lambda: lost)

    with pytest.raises(LockLostError, match="time ran out"):
        await hold(
            outstay,
            expire=0.05,
            auto_renew=False,
            cancel_on_lost=False,
            on_lost=lambda lease, why: lost.append((lease.lost, why)),
        )

    assert lost == [(True, "its time ran out")]


async def test_every_form_accepts_replicas(front, client, name, hold):
    async def never(lease):
        raise AssertionError("it must not run")

    with pytest.raises(LockUnconfirmedError, match="of 9 replicas"):
        await hold(never, acquire_time=0, expire=0.2, replicas=9)

    assert not client.exists(f"sys:lock:{name}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_renew": 1},
        {"auto_renew": None},
        {"fencing": "yes"},
        {"max_hold": 0},
        {"max_hold": True},
        {"max_hold": float("nan")},
        {"min_hold": -1},
        {"min_hold": "5"},
        {"min_hold": 10**12},
        {"on_lost": "print"},
        {"replicas": -1},
        {"replicas": 1.0},
        {"replicas": True},
    ],
    ids=str,
)
async def test_invalid_option_is_refused_before_anything_is_locked(front, conn, wrong):
    (option,) = wrong

    with pytest.raises(ConfigurationError, match=option):
        front.package.RedisLock("x", client=conn, **wrong)
    with pytest.raises(ConfigurationError, match=option):
        redis_lock("x", **wrong)
    with pytest.raises(ConfigurationError, match=option):
        Locks(**wrong)
    with pytest.raises(ConfigurationError, match=option):
        configure(**wrong)


# auto_renew


async def test_renewed_lock_is_held_longer_than_its_expire(front, client, name, make):
    async with front.held(make(expire=0.4)) as lease:
        first = lease.deadline

        await front.sleep(0.6)

        assert await do(lease.owned())
        assert lease.deadline > first + 0.2
        assert 0 < lease.remaining() < lease.expire == 0.4
        assert 0 < client.pttl(f"sys:lock:{name}") <= 400
        lease.check()

    assert not client.exists(f"sys:lock:{name}")


async def test_lock_without_renewal_ends_with_its_expire(front, client, name, make):
    lock = make(expire=0.1, auto_renew=False, cancel_on_lost=False)

    with pytest.raises(LockLostError, match=r"time ran out|its key is gone"):
        async with front.held(lock) as lease:
            first = lease.deadline
            await until(front, lambda: not client.exists(f"sys:lock:{name}"))
            assert lease.deadline == first
            assert lease.lost
            with pytest.raises(LockLostError, match="time ran out"):
                lease.check()


async def test_released_lock_is_no_longer_renewed(front, client, name, make):
    lease = await do(make(expire=0.3).acquire())
    first = lease.deadline
    await until(front, lambda: lease.deadline > first)
    await do(lease.release())
    client.set(f"sys:lock:{name}", lease.identifier, px=200)  # as if the release had not come

    await front.sleep(0.4)

    assert not client.exists(f"sys:lock:{name}")


# max_hold


async def test_max_hold_ends_a_renewed_lease(front, client, name, make):
    lost = []
    lock = make(expire=0.6, max_hold=0.9, on_lost=lambda lease, why: lost.append(why))
    started = time.monotonic()

    with pytest.raises(LockLostError, match=r"max_hold of 0\.9 s is over"):
        async with front.held(lock) as lease:
            entered = time.monotonic()
            await until(front, lambda: lost)

    assert started + 0.8 < lease.deadline < entered + 0.9
    assert lost == ["its max_hold of 0.9 s is over"]
    next_one = await do(make(acquire_time=10).acquire())
    await do(next_one.release())


async def test_expire_is_limited_to_max_hold(front, client, name, make):
    before = time.monotonic()

    async with front.held(make(expire=60, max_hold=20)) as lease:
        assert lease.expire == 20
        assert before + 19 < lease.deadline < time.monotonic() + 20
        assert 19_000 < client.pttl(f"sys:lock:{name}") <= 20_000


async def test_expire_shorter_than_max_hold_is_kept(front, client, name, make):
    async with front.held(make(expire=20, max_hold=60)) as lease:
        assert lease.expire == 20
        assert 19_000 < client.pttl(f"sys:lock:{name}") <= 20_000


async def test_loss_before_max_hold_is_not_attributed_to_it(front, client, name, make):
    lost = []
    options = {"auto_renew": False, "cancel_on_lost": False}
    lock = make(expire=0.05, max_hold=60, on_lost=lambda lease, why: lost.append(why), **options)

    with pytest.raises(LockLostError) as caught:
        async with front.held(lock):
            await until(front, lambda: lost)

    assert lost == ["its time ran out"]
    assert "max_hold" not in str(caught.value)


# min_hold


async def test_min_hold_keeps_the_lock_after_a_short_block(front, client, make):
    started = time.monotonic()

    async with front.held(make(min_hold=0.15)):
        pass
    next_one = await do(make(acquire_time=10).acquire())

    assert next_one is not None
    assert time.monotonic() - started >= 0.15
    await do(next_one.release())


async def test_min_hold_counts_from_the_acquisition(front, client, name, make):
    async with front.held(make(min_hold=30)):
        await front.sleep(0.1)

    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 29_950
    client.delete(f"sys:lock:{name}")


async def test_block_longer_than_min_hold_releases_at_once(front, client, name, make):
    async with front.held(make(min_hold=0.05)):
        await front.sleep(0.06)

    assert not client.exists(f"sys:lock:{name}")


async def test_failed_body_releases_at_once_despite_min_hold(front, client, name, make):
    with pytest.raises(ValueError, match="own"):
        async with front.held(make(min_hold=30)):
            raise ValueError("the body's own")

    assert not client.exists(f"sys:lock:{name}")


async def test_rest_of_min_hold_has_no_holder(front, client, name, make):
    lock, impatient = make(min_hold=30), make(acquire_time=0)
    lease = await do(lock.acquire())
    await do(lease.release())

    await do(lease.release())  # again, and nothing happens

    assert not await do(lease.owned())
    assert await do(lock.owner()) == lease.identifier  # min_hold blocks the lock after its release
    assert await do(impatient.acquire()) is None
    assert await elsewhere(front, impatient.acquire) is None
    assert await do(lock.acquire(acquire_time=0.02)) is None
    with pytest.raises(LockNotOwnedError, match="was released"):
        await do(lease.extend())
    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 30_000
    client.delete(f"sys:lock:{name}")


async def test_old_identifier_cannot_release_the_rest_of_min_hold(front, conn, client, name, make):
    lease = await do(make(min_hold=30).acquire())
    identifier = lease.identifier
    await do(lease.release())

    freed = await do(front.package.release_lock(conn, name, identifier))

    assert freed is False
    assert client.exists(f"sys:lock:{name}")
    client.delete(f"sys:lock:{name}")


async def test_min_hold_applies_to_every_name(front, client, name, make):
    names = [f"{name}:a", f"{name}:b"]

    async with front.held(make(names, min_hold=30)):
        pass

    for each in names:
        assert 20_000 < client.pttl(f"sys:lock:{each}") <= 30_000
        client.delete(f"sys:lock:{each}")


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_every_release_method_observes_min_hold(front, client, name, make, topology, method):
    if method == "transaction" and topology.is_cluster:
        pytest.skip("a cluster's client cannot WATCH")
    lock = make(min_hold=30, release_method=method)

    async with front.held(lock):
        pass

    assert 20_000 < client.pttl(f"sys:lock:{name}") <= 30_000
    client.delete(f"sys:lock:{name}")
    with pytest.raises(ValueError, match="own"):
        async with front.held(lock):
            raise ValueError("the body's own")
    assert not client.exists(f"sys:lock:{name}")


async def test_min_hold_is_refused_with_native_release(front, conn):
    for way in (Locks, redis_lock, front.package.RedisLock):
        with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
            way(min_hold=1, release_method="native")
    native = Locks(release_method="native")

    with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
        native.lock("x", min_hold=1)
    with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
        native.configure(min_hold=1)


async def test_error_says_that_min_hold_blocks_the_lock(front, make, client, name):
    async with front.held(make(min_hold=60)) as lease:
        identifier = lease.identifier
    lock = make(acquire_time=0)

    assert await do(lock.owner()) == identifier
    with pytest.raises(LockTimeoutError, match=r"kept by the min_hold of .*… for another \d+.* s"):
        async with front.held(lock):
            pass
    assert not await do(lock.force_release("another"))
    assert await do(lock.force_release(identifier))
    assert not client.exists(f"sys:lock:{name}")


async def test_decorated_function_runs_once_in_its_min_hold(front, conn, client, name):
    runs = []
    decorate = redis_lock(name, client=conn, min_hold=30, acquire_time=0, on_busy="skip")

    async def body(lease):
        runs.append(lease.identifier)
        return "ran"

    work = in_function(front, decorate)

    assert [await work(body) for _ in range(3)] == ["ran", None, None]
    assert len(runs) == 1
    client.delete(f"sys:lock:{name}")


# on_lost


@pytest.mark.parametrize(("taken_by", "why"), [(None, "its key is gone"), ("external", "exte")])
async def test_renewal_calls_on_lost_once(front, client, name, make, taken_by, why):
    lost = []
    lock = make(expire=0.3, on_lost=lambda *arguments: lost.append(arguments), cancel_on_lost=False)

    with pytest.raises(LockLostError, match=why):
        async with front.held(lock) as lease:
            client.delete(f"sys:lock:{name}")
            if taken_by is not None:
                client.set(f"sys:lock:{name}", taken_by, px=60_000)
            await until(front, lambda: lost)
            assert lease.lost

    ((lost_lease, reason),) = lost
    assert lost_lease is lease
    assert why in reason
    client.delete(f"sys:lock:{name}")


async def test_release_that_finds_a_loss_calls_on_lost_once(front, client, name, make):
    lost = []
    lease = await do(make(on_lost=lambda *arguments: lost.append(arguments)).acquire())
    client.set(f"sys:lock:{name}", "external", px=60_000)

    with pytest.raises(LockLostError, match="exte"):
        await do(lease.release())
    await do(lease.release())

    ((lost_lease, reason),) = lost
    assert lost_lease is lease
    assert "exte" in reason
    client.delete(f"sys:lock:{name}")


async def test_release_does_not_call_on_lost(front, client, make):
    lost = []
    lock = make(expire=0.5, on_lost=lambda *arguments: lost.append(arguments))

    async with front.held(lock):
        pass
    with pytest.raises(ValueError, match="own"):
        async with front.held(lock):
            raise ValueError("the body's own")
    lease = await do(lock.acquire())
    await do(lease.extend())
    await do(lease.release())
    await front.sleep(0.55)

    assert lost == []


async def test_failing_on_lost_is_logged(front, client, name, make, caplog):
    def fail(lease, why):
        raise RuntimeError("the callback's own")

    lease = await do(make(on_lost=fail).acquire())
    client.set(f"sys:lock:{name}", "external", px=60_000)

    with caplog.at_level(logging.ERROR), pytest.raises(LockLostError, match="exte"):
        await do(lease.release())

    assert "the callback's own" in caplog.text
    client.delete(f"sys:lock:{name}")


# fencing


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
        pytest.skip("only a single server of the tests' own is emptied")
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

    assert MINUTE / 2 < client.pttl(fence_key(name)) <= MINUTE


async def test_without_fencing_there_is_no_fence(front, client, name, make):
    async with front.held(make()) as lease:
        assert lease.fence is None

    assert not client.exists(fence_key(name))


async def test_busy_lock_does_not_consume_a_fence(front, client, name, make):
    lock = make(fencing=True)
    async with front.held(lock) as lease:
        assert await elsewhere(front, lambda: lock.acquire(blocking=False)) is None

        kept = client.hget(fence_key(name), "fence")

    assert int(kept) == lease.fence


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
    await fence_of(front, lock)  # connected, and the scripts are known
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


# replicas


async def test_replicas_confirm_unless_more_are_required(front, client, name, make, topology):
    there = 0 if topology.is_cluster else client.info("replication")["connected_slaves"]

    async with front.held(make(replicas=there)) as lease:
        assert await do(lease.owned())
    with pytest.raises(LockUnconfirmedError, match=f"{there} of {there + 1} replicas"):
        async with front.held(make(replicas=there + 1, acquire_time=0, expire=0.4)):
            raise AssertionError("it must not run")

    assert not client.exists(f"sys:lock:{name}")


@pytest.fixture(scope="module")
def pair():
    """A server and its replica."""
    with LocalServer(*SYNC_AT_ONCE) as master:
        follow = ("--replicaof", master.host, str(master.port))
        with LocalServer(*SYNC_AT_ONCE, *follow) as replica:
            replica.nodes[0].wait_until_says("master_link_status:up", "INFO")
            master.nodes[0].wait_until_says("slave0:.*state=online", "INFO")
            yield master, replica


@pytest.fixture(params=["direct", "wrapped"])
def replicated(front, pair, name, request):
    """A lock on a server with one replica: past the client's ``execute_command``, or through it."""
    conn = front.client(pair[0])
    if request.param == "wrapped":
        wrap(conn)

    def lock(**options):
        return front.package.RedisLock(name, client=conn, **options)

    return lock


@pytest.mark.parametrize("fencing", [False, True])
async def test_one_replica_confirms_one(front, pair, name, replicated, fencing):
    async with front.held(replicated(replicas=1, fencing=fencing)) as lease:
        on_replica = pair[1].client().get(f"sys:lock:{name}")

        assert on_replica.decode() == lease.identifier
        assert (lease.fence is not None) is fencing

    assert not pair[0].client().exists(f"sys:lock:{name}")


@pytest.mark.parametrize("fencing", [False, True])
async def test_one_replica_does_not_make_two(front, pair, name, replicated, fencing):
    lock = replicated(replicas=2, fencing=fencing, acquire_time=0, expire=1)

    with pytest.raises(LockUnconfirmedError, match="1 of 2 replicas confirmed"):
        async with front.held(lock):
            raise AssertionError("it must not run")

    assert not pair[0].client().exists(f"sys:lock:{name}")
    assert await do(replicated().acquire(blocking=False)) is not None


@pytest.mark.parametrize("on_busy", ["skip", lambda body: "answered"], ids=["skip", "answer"])
async def test_on_busy_does_not_answer_for_replicas(front, pair, name, on_busy):
    options = {"replicas": 2, "acquire_time": 0, "on_busy": on_busy}
    work = in_function(front, redis_lock(name, client=front.client(pair[0]), **options))

    async def body(lease):
        raise AssertionError("it must not run")

    with pytest.raises(LockUnconfirmedError, match="1 of 2 replicas"):
        await work(body)

    assert not pair[0].client().exists(f"sys:lock:{name}")


async def test_too_few_replicas_do_not_affect_another_holder(front, pair, name, replicated):
    async with front.held(replicated(expire=30)) as lease:
        greedy = replicated(replicas=2, acquire_time=0, expire=1)

        async def enter():
            async with front.held(greedy):
                raise AssertionError("held twice")

        (error,) = await front.elsewhere(enter)

        assert isinstance(error, LockTimeoutError)
        assert error.holder == lease.identifier[:8] + "…"
        assert await do(lease.owned())
        assert 20_000 < pair[0].client().pttl(f"sys:lock:{name}") <= 30_000


async def test_paused_replica_confirms_nothing_until_resumed(front, pair, name, replicated):
    master, replica = pair
    replica.pause()
    try:
        with pytest.raises(LockUnconfirmedError, match="0 of 1 replicas confirmed"):
            async with front.held(replicated(replicas=1, acquire_time=0, expire=1)):
                raise AssertionError("it must not run")
        assert not master.client().exists(f"sys:lock:{name}")
    finally:
        replica.resume()

    async with front.held(replicated(replicas=1, acquire_time=20)) as lease:
        assert await do(lease.owned())

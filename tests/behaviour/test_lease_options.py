"""Options of a lease: how they are given, auto_renew, max_hold and on_lost."""

from __future__ import annotations

import logging

import pytest
from support.fronts import TIME, do
from support.lease_forms import in_block, in_function, until

from redis_lock_decorators import (
    ConfigurationError,
    LockLostError,
    Locks,
    LockUnconfirmedError,
    configure,
    redis_lock,
)
from redis_lock_decorators._shared.settings import DEFAULT, Settings


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


def holder(front, conn, name, form, options):
    hook = "get_redis_connection" if front.name == "blocking" else "get_async_redis_connection"
    project = {hook: lambda: conn, **options}
    if form == "RedisLock":
        return in_block(front, front.package.RedisLock(name, client=conn, **options))
    if form == "@redis_lock":
        return in_function(front, redis_lock(name, client=conn, **options))
    if form == "configure":
        lock = front.package.RedisLock(name)
        configure(**project)
        return in_block(front, lock)
    locks = Locks(**project)
    if form == "Locks.redis_lock":
        return in_function(front, locks.redis_lock(name))
    make = locks.lock if front.name == "blocking" else locks.async_lock
    return in_block(front, make(name))


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

    async def wait_for_loss(lease):
        await until(front, lambda: lost)

    with pytest.raises(LockLostError, match="time ran out"):
        await hold(
            wait_for_loss,
            expire=0.05,
            auto_renew=False,
            cancel_on_lost=False,
            on_lost=lambda lease, why: lost.append((lease.lost, why)),
        )

    assert lost == [(True, "its time ran out")]


async def test_every_form_accepts_replicas(front, client, name, hold):
    async def never(lease):
        raise AssertionError("the body must not run")

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
    client.set(f"sys:lock:{name}", lease.identifier, px=200)  # as if the release had not arrived

    await front.sleep(0.4)

    assert not client.exists(f"sys:lock:{name}")


async def test_max_hold_ends_a_renewed_lease(front, client, name, make):
    lost = []
    lock = make(expire=0.6, max_hold=0.9, on_lost=lambda lease, why: lost.append(why))
    started = TIME.now()

    with pytest.raises(LockLostError, match=r"max_hold of 0\.9 s is over"):
        async with front.held(lock) as lease:
            entered = TIME.now()
            await until(front, lambda: lost)

    assert started + 0.8 < lease.deadline < entered + 0.9
    assert lost == ["its max_hold of 0.9 s is over"]
    next_one = await do(make(acquire_time=10).acquire())
    await do(next_one.release())


async def test_expire_is_limited_to_max_hold(front, client, name, make):
    before = TIME.now()

    async with front.held(make(expire=60, max_hold=20)) as lease:
        assert lease.expire == 20
        assert before + 19 < lease.deadline < TIME.now() + 20
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
            raise ValueError("own error of the body")
    lease = await do(lock.acquire())
    await do(lease.extend())
    await do(lease.release())
    await front.sleep(0.55)

    assert lost == []


async def test_failing_on_lost_is_logged(front, client, name, make, caplog):
    def fail(lease, why):
        raise RuntimeError("own error of the callback")

    lease = await do(make(on_lost=fail).acquire())
    client.set(f"sys:lock:{name}", "external", px=60_000)

    with caplog.at_level(logging.ERROR), pytest.raises(LockLostError, match="exte"):
        await do(lease.release())

    assert "own error of the callback" in caplog.text
    client.delete(f"sys:lock:{name}")

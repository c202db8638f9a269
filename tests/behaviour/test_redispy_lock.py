"""The drop-ins for redis-py's Lock, on every topology."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import redis
from redis.lock import Lock as RedisPyLock
from support.fronts import LEGACY, TIME, do

from redis_lock_decorators import ConfigurationError, LockError, LockNameError, LockNotOwnedError

if not LEGACY:
    pass

METHODS = ("__init__", "acquire", "extend", "locked", "owned", "reacquire", "release")


@pytest.fixture
def make(front, conn, name):
    """Make locks on the test's key."""

    def lock(**options):
        return front.package.lock.Lock(conn, name, **options)

    return lock


def text(value):
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("method", METHODS)
def test_signatures_match_redis_py(front, method):
    theirs = inspect.signature(getattr(RedisPyLock, method)).parameters
    ours = inspect.signature(getattr(front.package.lock.Lock, method)).parameters

    assert set(theirs) <= set(ours)


async def test_client_lock_creates_it(front, conn, client, name):
    lock = conn.lock(name, timeout=3, lock_class=front.package.lock.Lock)

    async with front.held(lock) as held:
        assert held is lock
        assert isinstance(lock, front.package.lock.Lock)
        assert text(client.get(name)) == lock.local.token.decode()
        assert 2_000 < client.pttl(name) <= 3_000

    assert not client.exists(name)
    assert lock.local.token is None


async def test_lock_without_timeout_does_not_expire(front, client, name, make):
    lock = make()

    assert await do(lock.acquire()) is True

    assert client.pttl(name) == -1
    assert await do(lock.owned()) is True
    assert await do(lock.locked()) is True
    await do(lock.release())
    assert await do(lock.locked()) is False
    assert await do(lock.owned()) is False


@pytest.mark.parametrize("kind", [str, bytes, memoryview, "binary", "number", "long"])
async def test_name_is_the_key(front, conn, client, name, kind):
    names = {
        str: f"{name}:e\u0301",
        bytes: name.encode(),
        memoryview: memoryview(name.encode()),
        "binary": name.encode() + b"\xff\x00 {x}",
        "number": 10**9 + int(name.rpartition(":")[2]),
        "long": name * 1000,
    }
    key = bytes(names[kind]) if kind is memoryview else names[kind]

    async with front.held(front.package.lock.Lock(conn, names[kind], timeout=3)):
        assert client.exists(key)

    assert not client.exists(key)


@pytest.mark.parametrize("wrong", [None, "", b"", True, object(), ["a"]])
async def test_invalid_name_is_refused(front, conn, client, wrong):
    with pytest.raises(LockNameError):
        front.package.lock.Lock(conn, wrong)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, False, "3", 10**12])
async def test_invalid_timeout_is_refused(front, client, make, wrong):
    with pytest.raises(ConfigurationError, match="timeout="):
        make(timeout=wrong)
    with pytest.raises(ConfigurationError, match="additional_time="):
        await do(make(timeout=3).extend(wrong))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"timeout": -1}, "timeout=-1: give more than 0"),
        ({"sleep": -1}, "sleep=-1: give more than 0"),
        ({"blocking_timeout": -1}, "blocking_timeout=-1: give 0 s or more"),
        ({"timeout": float("nan")}, "timeout=nan: give more than 0"),
        ({"timeout": "3"}, "timeout='3': give a number of seconds"),
    ],
    ids=str,
)
async def test_invalid_numbers_and_other_types_have_different_errors(make, option, message):
    with pytest.raises(ConfigurationError, match=message):
        make(**option)


@pytest.mark.parametrize(
    "options",
    [
        {"sleep": 0},
        {"sleep": "1"},
        {"sleep": float("nan")},
        {"blocking": 0.5},
        {"blocking_timeout": -1},
        {"blocking_timeout": True},
        {"blocking_timeout": float("nan")},
    ],
    ids=str,
)
async def test_invalid_setting_is_refused(front, client, name, make, options):
    with pytest.raises(ConfigurationError):
        make(**options)
    with pytest.raises(ConfigurationError):
        await do(make(timeout=3).acquire(**options))
    assert not client.exists(name)


async def test_auto_renew_holds_longer_than_the_timeout(front, client, name, make):
    lock = make(timeout=0.8, auto_renew=True)
    await do(lock.acquire())

    await front.sleep(1.3)

    assert await do(lock.owned())
    await do(lock.release())
    assert not client.exists(name)


async def test_auto_renew_without_a_timeout_ends_with_its_holder(front, client, name, make):
    lock = make(auto_renew=True)
    await do(lock.acquire())

    assert 0 < client.pttl(name) <= 10_000
    await do(lock.release())


async def test_auto_renew_ends_when_the_token_is_cleared(front, client, name, make):
    lock = make(timeout=0.2, auto_renew=True)
    await do(lock.acquire())

    lock.local.token = None
    await front.sleep(0.4)

    assert not client.exists(name)


async def test_misplaced_sleep_is_refused_with_a_hint(front, client, make):
    with pytest.raises(ConfigurationError, match="sleep="):
        await do(make().acquire(0.5))


async def test_one_positional_false_tries_once_without_sleeping(front, client, make):
    holder, rival = make(timeout=30), make(timeout=30, sleep=3600)
    assert await do(holder.acquire())
    started = TIME.now()

    assert await do(rival.acquire(False)) is False
    assert await do(rival.acquire(blocking=False, sleep=0)) is False
    assert await do(make(timeout=30, blocking=False).acquire(blocking_timeout=60)) is False
    assert await do(rival.acquire(blocking_timeout=0)) is False

    assert TIME.now() - started < 5
    await do(holder.release())


async def test_waits_until_its_timeout_despite_a_long_sleep(front, client, make):
    holder = make(timeout=0.25)
    assert await do(holder.acquire())
    started = TIME.now()

    assert await do(make(timeout=3, sleep=60).acquire(blocking_timeout=0.1)) is False
    assert TIME.now() - started >= 0.1
    assert await do(make(timeout=3, sleep=60, blocking_timeout=0.4).acquire()) is True

    assert 0.2 < TIME.now() - started < 5


async def test_waits_without_limit_without_blocking_timeout(front, client, make):
    holder, waiter = make(timeout=30), make(timeout=30, sleep=0.01)
    assert await do(holder.acquire())

    async def wait():
        return await do(waiter.acquire()), await do(waiter.release())

    async def release_keys():
        await front.sleep(0.1)

    if front.name == "asyncio":
        waiting = asyncio.ensure_future(wait())
        await release_keys()
        await holder.release()
        assert await waiting == (True, None)
        return
    shared = make(timeout=30, thread_local=False)
    shared.local.token = holder.local.token

    async def release():
        await release_keys()
        shared.release()

    assert await front.elsewhere(wait, release) == [(True, None), None]


async def test_busy_block_raises_and_the_body_does_not_run(front, client, make):
    holder = make(timeout=30)
    assert await do(holder.acquire())

    with pytest.raises(LockError, match=r"was not free within 0\.02 s") as caught:
        async with front.held(make(blocking_timeout=0.02)):
            raise AssertionError("held twice")

    assert isinstance(caught.value, redis.exceptions.LockError)
    await do(holder.release())


async def test_failed_second_acquire_keeps_the_first_token(front, client, make):
    lock = make(timeout=30)
    assert await do(lock.acquire())
    token = lock.local.token

    assert await do(lock.acquire(False)) is False
    with pytest.raises(LockError):
        async with front.held(make(timeout=30, blocking=False)):
            pass

    assert lock.local.token == token
    await do(lock.release())


async def test_unlocked_and_not_owned_errors_differ(front, client, name, make):
    lock = make(timeout=30)

    for call in (lock.release, lock.reacquire, lambda: lock.extend(10)):
        with pytest.raises(LockError, match="is not locked") as caught:
            await do(call())
        assert not isinstance(caught.value, LockNotOwnedError)
    client.set(name, "external")
    for call in (lock.release, lock.reacquire, lambda: lock.extend(10)):
        with pytest.raises(LockNotOwnedError, match=r"exte… holds it") as caught:
            await do(call())
        assert isinstance(caught.value, redis.exceptions.LockNotOwnedError)


async def test_lock_taken_over_cannot_be_changed(front, client, name, make):
    lock = make(timeout=30)
    assert await do(lock.acquire())
    client.set(name, "external")

    assert not await do(lock.owned())
    for call in (lambda: lock.extend(10), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError, match="exte… holds it"):
            await do(call())

    assert lock.local.token is None
    assert text(client.get(name)) == "external"
    assert client.pttl(name) == -1


async def test_expired_lock_raises(front, client, make):
    lock = make(timeout=0.03)
    assert await do(lock.acquire())
    await front.sleep(0.05)

    for call in (lambda: lock.extend(10), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError, match="its key is gone"):
            await do(call())

    assert lock.local.token is None
    assert not await do(lock.locked())


async def test_extend_adds_or_replaces(front, client, name, make):
    lock = make(timeout=10)
    assert await do(lock.acquire())

    assert await do(lock.extend(10)) is True
    assert 18_000 < client.pttl(name) <= 20_030
    assert await do(lock.extend(0.5)) is True
    assert 18_500 < client.pttl(name) <= 20_560
    assert await do(lock.extend(5, replace_ttl=True)) is True
    assert 4_000 < client.pttl(name) <= 5_030
    assert await do(lock.reacquire()) is True
    assert 9_000 < client.pttl(name) <= 10_030
    await do(lock.release())
    assert not client.exists(name)


async def test_extended_lock_is_released_after_its_first_timeout(front, client, name, make):
    lock = make(timeout=0.05)
    assert await do(lock.acquire())
    await do(lock.extend(30))
    await front.sleep(0.06)

    assert await do(lock.owned())
    await do(lock.release())

    assert not client.exists(name)


async def test_lock_without_timeout_cannot_be_extended(front, client, name, make):
    lock = make()
    assert await do(lock.acquire())

    for call in (lambda: lock.extend(10), lock.reacquire):
        with pytest.raises(LockError, match="no timeout"):
            await do(call())

    assert client.pttl(name) == -1
    await do(lock.release())


async def test_persisted_lock_cannot_be_extended(front, client, name, make):
    lock = make(timeout=10)
    assert await do(lock.acquire())
    client.persist(name)

    with pytest.raises(LockError, match="no expiry"):
        await do(lock.extend(10))

    await do(lock.release())


async def test_body_error_is_never_replaced(front, client, name, make, caplog):
    error = ValueError("own error of the body")

    with pytest.raises(ValueError, match="own") as caught:
        async with front.held(make(timeout=30)):
            client.set(name, "external")
            raise error

    assert caught.value is error
    assert "was not released" in caplog.text


async def test_lock_lost_in_its_block_raises_or_is_logged(front, client, name, make, caplog):
    with pytest.raises(LockNotOwnedError):
        async with front.held(make(timeout=30)):
            client.set(name, "external")
    client.delete(name)
    async with front.held(make(timeout=30)) as lock:
        await do(lock.release())
        with pytest.raises(LockError, match="is not locked"):
            await do(lock.release())
        assert await do(lock.acquire())
    assert not caplog.text

    async with front.held(make(timeout=30, raise_on_release_error=False)):
        client.set(name, "external")

    assert "was not released" in caplog.text


async def test_drop_in_and_redis_py_lock_exclude_each_other(front, conn, client, name, make):
    theirs, ours = conn.lock(name, timeout=30), make(timeout=30)

    assert await do(theirs.acquire())
    assert not await do(ours.acquire(False))
    await do(theirs.release())
    assert await do(ours.acquire())
    assert not await do(theirs.acquire(blocking=False))
    await do(ours.release())


async def test_waiting_blocks_run_one_at_a_time(front, client, name, conn):
    inside = []

    async def work():
        lock = front.package.lock.Lock(conn, name, timeout=30, sleep=0.002)
        for _ in range(5):
            async with front.held(lock):
                inside.append(1)
                await front.sleep(0.001)
                assert inside == [1]
                inside.clear()

    assert await front.elsewhere(*[work] * 4) == [None] * 4

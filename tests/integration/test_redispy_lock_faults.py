"""The drop-in for redis-py's Lock with lost replies, dead servers and interrupted callers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time

import pytest
import redis
from support.fronts import LEGACY, do, wrap
from support.interruptions import Interrupted, Interruption, Limited, interrupt_every_line
from support.proxy import FaultProxy
from support.suspensions import cancel_everywhere

import redis_lock_decorators.lock
from redis_lock_decorators import LockError, _lua
from redis_lock_decorators._flow import release_fallbacks
from redis_lock_decorators._rules.keys import with_notes
from redis_lock_decorators.compat import python_redis_lock
from redis_lock_decorators.testing import LocalServer

if not LEGACY:
    import redis_lock_decorators.asyncio.lock

BROKEN = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
MINE = "mine"
FATES = pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])


@pytest.fixture(params=["direct", "wrapped"])
def client(front, proxy, request):
    """A client of the proxy, bypassing its ``execute_command`` or through it."""
    client = front.client(proxy)
    if request.param == "wrapped":
        if LEGACY:
            pytest.skip("redis-py 3.5 does not resend on its own")
        wrap(client)
    return client


@pytest.fixture
def make(front, client, name):
    def lock(**options):
        return front.package.lock.Lock(client, name, **options)

    return lock


def runs(verb):
    """Whether a command runs the script of a verb, by EVAL or EVALSHA."""
    return lambda command: len(command) > 1 and command[1] in _lua.script(verb)


async def warm(lock):
    """Load the scripts by using them."""
    for token in (None, "warm"):
        assert await do(lock.acquire(token=token))
        if lock.timeout is not None:
            await do(lock.extend(1))
        await do(lock.release())


@FATES
@pytest.mark.parametrize("known", [False, True], ids=["eval", "evalsha"])
@pytest.mark.parametrize("verb", ["acquire", "settle"])
@pytest.mark.parametrize("timeout", [None, 10])
@pytest.mark.parametrize("token", [None, "mine"])
async def test_acquire_succeeds_though_a_message_is_lost(
    front, proxy, direct, name, make, fate, known, verb, timeout, token
):
    lock = make(timeout=timeout)
    if known:
        await warm(lock)
    else:
        direct.script_flush()
    getattr(proxy, fate)(runs(verb))
    started = time.monotonic()

    assert await do(lock.acquire(False, token=token)) is True

    assert time.monotonic() - started < 5
    assert direct.get(name) == lock.local.token
    assert token is None or lock.local.token == token.encode()
    assert direct.pttl(name) == -1 if timeout is None else 8_000 < direct.pttl(name) <= 10_000
    assert await do(lock.owned())
    await do(lock.release())
    assert not direct.exists(name)


@FATES
@pytest.mark.parametrize("timeout", [None, 10])
@pytest.mark.parametrize("token", [None, "mine"])
async def test_release_succeeds_though_a_message_is_lost(
    front, proxy, direct, name, make, fate, timeout, token
):
    lock = make(timeout=timeout)
    await warm(lock)
    assert await do(lock.acquire(token=token))
    getattr(proxy, fate)(runs("release"))

    await do(lock.release())

    assert lock.local.token is None
    assert not direct.exists(name)


def loses_first_release(direct, key):
    """A rule for the proxy: the next holder has the same token before the release is repeated."""
    releases = []

    def is_lost(command):
        if not runs("release")(command):
            return False
        releases.append(command)
        if len(releases) == 2:
            direct.set(key, MINE, px=10_000)
        return len(releases) == 1

    return is_lost


@pytest.mark.parametrize("timeout", [None, 10])
async def test_repeated_release_leaves_the_next_holder_with_the_same_token(
    proxy, direct, name, make, timeout
):
    lock = make(timeout=timeout)
    await warm(lock)
    assert await do(lock.acquire(token=MINE))
    proxy.drop_reply(loses_first_release(direct, name), times=10)

    await do(lock.release())

    assert direct.get(name) == MINE.encode()


@pytest.mark.parametrize("was_run", [True, False])
async def test_release_that_is_repeated_late_releases_only_what_its_claim_has_acquired(
    proxy, direct, name, make, monkeypatch, was_run
):
    monkeypatch.setattr(release_fallbacks, "RECORDED", 0.0)
    lock = make(timeout=60)
    await warm(lock)
    assert await do(lock.acquire(token=MINE))
    (proxy.drop_reply if was_run else proxy.drop_request)(runs("release"), times=100)
    with pytest.raises(redis.exceptions.RedisError):
        await do(lock.release())
    proxy._rules.clear()
    if was_run:
        direct.delete(with_notes((name.encode(),))[-1])  # the record has expired
        direct.set(name, MINE, px=10_000)
        with pytest.raises(LockError):
            await do(lock.release())
        assert direct.get(name) == MINE.encode()
    else:
        await do(lock.release())
        assert not direct.exists(name)


async def test_release_after_the_end_of_the_lease_leaves_the_next_holder_with_the_same_token(
    direct, front, server, name
):
    first, second = (
        front.package.lock.Lock(front.client(server), name, timeout=60) for _ in range(2)
    )
    assert await do(first.acquire(token=MINE))
    direct.delete(name)  # as if it had expired
    assert await do(second.acquire(token=MINE))

    with pytest.raises(LockError):
        await do(first.release())

    assert direct.get(name) == MINE.encode()
    await do(second.release())
    assert not direct.exists(name)


async def test_failed_acquisition_leaves_the_holder_with_the_same_token(proxy, direct, name, make):
    """The lock is deleted before it gets its final identifier, and acquired by the other one."""
    lock = make(timeout=60)
    await warm(lock)

    def delete(command):
        if runs("settle")(command):
            direct.delete(name)
        return False

    def acquire(command, reply):
        if runs("settle")(command):
            direct.set(name, MINE, px=10_000)
        return reply

    proxy.drop_request(delete)
    proxy.rewrite = acquire

    assert await do(lock.acquire(False, token=MINE)) is False

    proxy.rewrite = None
    assert direct.get(name) == MINE.encode()


def test_each_release_by_a_shared_identifier_is_recorded(direct, name):
    keys = with_notes((name.encode(),))
    release = _lua.script("release").text
    for number in range(_lua.MOST_RECORDS + 2):
        direct.set(name, MINE, px=10_000)
        assert direct.eval(release, len(keys), *keys, MINE, number, f"releaser:{number}", "shared")

    assert direct.zcard(keys[-1]) == _lua.MOST_RECORDS + 2
    assert 0 < direct.pttl(keys[-1]) <= _lua.RECORD_TTL
    direct.delete(*keys)


def test_repeated_release_leaves_the_next_holder_with_the_same_id(proxy, direct, name):
    lock = python_redis_lock.Lock(proxy.client(), name, expire=10, id=MINE)
    assert lock.acquire()
    proxy.drop_reply(loses_first_release(direct, f"lock:{name}"), times=10)

    lock.release()

    assert direct.get(f"lock:{name}") == MINE.encode()
    direct.delete(f"lock:{name}")


async def test_late_copy_of_an_acquisition_changes_no_lock_that_was_released(
    front, proxy, direct, name, make
):
    """Not even if the lock was granted once more to the identifier by which it was acquired."""
    lock = make(timeout=None)
    assert await do(lock.acquire(token=MINE))
    (settle,) = [command for command in proxy.commands if runs("settle")(command)][-1:]
    await do(lock.release())
    first = settle[3 + int(settle[2])]
    direct.set(name, first, px=10_000)

    direct.execute_command(*settle)

    assert direct.get(name) == first
    assert direct.pttl(name) > 0
    direct.delete(name)


@FATES
@pytest.mark.parametrize("verb", ["time_left", "adjust"])
@pytest.mark.parametrize("times", [1, 2])
async def test_extension_adds_once_though_a_message_is_lost(
    front, proxy, direct, name, make, fate, verb, times
):
    lock = make(timeout=10)
    await warm(lock)
    assert await do(lock.acquire())
    getattr(proxy, fate)(runs(verb), times=times)

    assert await do(lock.extend(20)) is True
    assert 28_000 < direct.pttl(name) <= 30_030
    getattr(proxy, fate)(runs(verb), times=times)
    assert await do(lock.reacquire()) is True

    assert 8_000 < direct.pttl(name) <= 10_030
    await do(lock.release())


async def test_late_copy_of_an_extension_changes_nothing(front, proxy, direct, name, make):
    lock = make(timeout=10)
    assert await do(lock.acquire())
    proxy.clear()
    await do(lock.extend(2, replace_ttl=True))
    late = [command for command in proxy.commands if runs("adjust")(command)][-1]
    await do(lock.extend(50))

    direct.eval(_lua.script("adjust").text, *late[2:])

    assert direct.pttl(name) > 50_000
    await do(lock.release())
    direct.eval(_lua.script("adjust").text, *late[2:])
    assert not direct.exists(name)


async def test_late_copy_of_an_acquire_expires(front, proxy, direct, name, make):
    lock = make()
    proxy.clear()
    assert await do(lock.acquire(token=MINE))
    sent = [command for command in proxy.commands if command[0].startswith(b"EVAL")]
    acquired, settled = (
        [command for command in sent if runs(verb)(command)][-1] for verb in ("acquire", "settle")
    )
    await do(lock.release())

    direct.eval(_lua.script("settle").text, *settled[2:])
    assert not direct.exists(name)
    direct.eval(_lua.script("acquire").text, *acquired[2:])

    assert 0 < direct.pttl(name) <= 10_000
    direct.delete(name)


async def test_failed_release_can_be_called_again(front, name):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        lock = front.package.lock.Lock(front.client(proxy), name, timeout=60)
        assert await do(lock.acquire())
        token = lock.local.token
        proxy.drop_request(lambda command: True, times=1000)
        with pytest.raises(BROKEN):
            await do(lock.release())
        assert lock.local.token == token
        proxy._rules.clear()

        await do(lock.release())

        assert lock.local.token is None
        assert not server.client().exists(name)


async def test_broken_connection_does_not_replace_the_body_error(front, name, caplog):
    with LocalServer() as server:
        lock = front.package.lock.Lock(front.client(server), name, timeout=60)
        with pytest.raises(ValueError, match="own"):
            async with front.held(lock):
                server.kill()
                raise ValueError("own error of the body")

    assert "was not released" in caplog.text


async def test_dead_server_raises_the_clients_own_error(front, name):
    with LocalServer() as server:
        client = front.client(server)
        lock = front.package.lock.Lock(client, name)
        assert await do(lock.acquire())
        server.kill()
        started = time.monotonic()

        with pytest.raises(BROKEN):
            await do(lock.owned())
        with pytest.raises(BROKEN):
            async with front.held(front.package.lock.Lock(client, name, blocking_timeout=0.2)):
                raise AssertionError("the body must not run")

        assert time.monotonic() - started < 20
        assert lock.local.token


async def test_acquire_without_a_reply_leaves_no_key(front, proxy, direct, name, make):
    lock = make()
    await warm(lock)
    proxy.drop_reply(runs("acquire"), times=1000)

    with pytest.raises(BROKEN):
        await do(lock.acquire(False))

    assert lock.local.token is None
    assert not direct.exists(name)
    proxy._rules.clear()
    proxy.drop_reply(runs("settle"), times=1000)
    with pytest.raises(BROKEN):
        await do(lock.acquire(False, token=MINE))
    assert lock.local.token is None
    assert not direct.exists(name)


OPTIONS = pytest.mark.parametrize(
    ("timeout", "token"), [(10, None), (None, None), (10, "mine"), (None, "mine")]
)


@OPTIONS
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", [Interrupted, Limited])
def test_thread_interrupted_at_any_line_leaves_no_key(
    server, direct, name, timeout, token, kind, monkeypatch
):
    monkeypatch.setattr(Interruption, "kind", kind)
    client = server.client()
    lock = redis_lock_decorators.lock.Lock(client, name, timeout=timeout)

    def acquire(interruption):
        with interruption:
            try:
                lock.acquire(token=token)
            except kind:
                assert not client.exists(name), interruption.location
                assert lock.local.token is None, interruption.location
                raise
        if lock.local.token is not None:
            lock.release()
        assert not client.exists(name), interruption.location

    def block(interruption):
        try:
            with interruption, lock:
                pass
        finally:
            assert not client.exists(name), interruption.location

    def failing_block(interruption):
        try:
            with contextlib.suppress(ValueError), interruption, lock:
                raise ValueError("of the body")
        finally:
            assert not client.exists(name), interruption.location

    def release(interruption):
        lock.acquire(token=token)
        try:
            with interruption:
                lock.release()
        finally:
            if lock.local.token is not None:
                lock.release()
            assert not client.exists(name), interruption.location

    assert interrupt_every_line(acquire) > 30
    assert interrupt_every_line(release) > 20
    if token is None:
        assert interrupt_every_line(block) > 50
        assert interrupt_every_line(failing_block) > 50


if not LEGACY:

    @OPTIONS
    async def test_task_cancelled_anywhere_leaves_no_key(
        front, proxy, direct, name, timeout, token
    ):
        if front.name != "asyncio":
            pytest.skip("threads are not cancelled")
        proxy.delay = 0.002
        lock = front.package.lock.Lock(front.client(proxy), name, timeout=timeout)

        async def acquire():
            await lock.acquire(token=token)

        async def block():
            async with lock:
                pass

        async def release():
            await lock.acquire(token=token)
            await lock.release()

        async def check(cancelled):
            assert cancelled is not bool(direct.exists(name))
            direct.delete(name)

        async def check_free(cancelled):
            assert not direct.exists(name)

        assert await cancel_everywhere(acquire, check) >= 1
        assert await cancel_everywhere(release, check_free) >= 1
        if token is None:
            assert await cancel_everywhere(block, check_free) >= 2

    @pytest.mark.filterwarnings("error:coroutine")
    async def test_task_cancelled_before_its_first_step_warns_of_nothing(front, server, name):
        if front.name != "asyncio":
            pytest.skip("threads are not cancelled")
        lock = front.package.lock.Lock(front.client(server), name, timeout=3)
        await lock.acquire()

        for method in (lock.acquire, lock.__aenter__, lock.release):
            task = asyncio.ensure_future(method())
            task.cancel()
            await asyncio.wait([task])
        exit_task = asyncio.ensure_future(lock.__aexit__(None, None, None))
        exit_task.cancel()
        await asyncio.wait([exit_task])
        gc.collect()

        await lock.release()

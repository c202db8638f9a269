"""The locks of pottery and those that replace them do the same."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from support.fronts import LEGACY

from redis_lock_decorators import ConfigurationError, Lease, LockNameError, configure
from redis_lock_decorators.compat import pottery as replacement

pytestmark = pytest.mark.skipif(LEGACY, reason="the original needs a newer redis-py")

NOWHERE = "redis://127.0.0.1:1/0"  # nothing listens there


def original() -> Any:
    dumps = json.dumps
    try:
        return pytest.importorskip("pottery")
    finally:
        json.dumps = dumps  # pottery replaces it for the whole process


@pytest.fixture(params=["original", "replacement"])
def library(request: pytest.FixtureRequest) -> Any:
    """Either of the two."""
    return replacement if request.param == "replacement" else original()


@pytest.fixture
def redlock(library: Any, conn: Any) -> Callable[..., Any]:
    """Returns locks on one master."""
    return lambda key="report", **options: library.Redlock(key=key, masters={conn}, **options)


def test_lock_is_held_by_one_object_at_a_time(library: Any, redlock: Any) -> None:
    first, second = redlock(), redlock()

    assert first.acquire() is True
    assert second.acquire(blocking=False) is False
    assert second.acquire(timeout=0.3) is False
    assert 8 < first.locked() < 10
    assert second.locked() == 0
    with pytest.raises(library.ReleaseUnlockedLock):
        second.release()

    first.release()
    assert first.locked() == 0
    assert second.acquire() is True
    second.release()


def test_waiter_acquires_the_lock_after_its_release(redlock: Any) -> None:
    holder, waiter = redlock(), redlock()
    holder.acquire()

    with ThreadPoolExecutor() as pool:
        acquired = pool.submit(waiter.acquire, timeout=20)
        time.sleep(0.2)
        holder.release()

        assert acquired.result(20) is True
    waiter.release()


def test_release_does_not_forget_the_lease_of_the_next_holder(
    conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = replacement.Redlock(key="shared", masters={conn}, auto_release_time=20)
    release = Lease.release

    def release_and_let_another_thread_acquire(lease: Lease) -> None:
        release(lease)
        monkeypatch.setattr(Lease, "release", release)
        assert shared.acquire() is True

    monkeypatch.setattr(Lease, "release", release_and_let_another_thread_acquire)
    shared.acquire()
    shared.release()

    assert shared.locked() > 0
    shared.release()
    assert shared.locked() == 0


def test_blocks_acquire_and_release(redlock: Any, conn: Any) -> None:
    lock = redlock()
    for _ in range(2):
        with lock as entered:
            assert entered is lock
            assert lock.locked()
            assert 8000 < conn.pttl("redlock:report") <= 10_000
        assert not conn.exists("redlock:report")
    assert lock.key == "redlock:report"


def test_lock_is_not_renewed(library: Any, redlock: Any) -> None:
    lock = redlock(auto_release_time=0.2)
    lock.acquire()
    time.sleep(0.4)

    assert lock.locked() == 0
    with pytest.raises(library.ReleaseUnlockedLock) as raised:
        lock.release()
    assert raised.value.key == "redlock:report"
    assert list(raised.value.redis_errors) == []
    with pytest.raises(library.ExtendUnlockedLock):
        lock.extend()


def test_expired_lock_of_a_block_raises(library: Any, redlock: Any) -> None:
    with pytest.raises(library.ReleaseUnlockedLock), redlock(auto_release_time=0.1):
        time.sleep(0.3)


def test_block_that_has_expired_does_not_release_the_lock_of_another_thread(conn: Any) -> None:
    shared = replacement.Redlock(key="report", masters={conn}, auto_release_time=0.5)
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with shared:
            entered.set()
            assert left.wait(10)

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(replacement.ReleaseUnlockedLock), shared:
            shared.auto_release_time = 20
            other = threads.submit(second)
            assert entered.wait(10)
            assert not shared.locked()
            with pytest.raises(replacement.ExtendUnlockedLock):
                shared.extend()
        try:
            assert conn.exists("redlock:report")
        finally:
            left.set()
        other.result(10)
    assert not conn.exists("redlock:report")


def test_block_that_has_expired_does_not_release_the_lock_of_another_task(server: Any) -> None:
    async def test() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            shared = replacement.AIORedlock(key="tasks", masters={conn}, auto_release_time=0.5)
            entered, left = asyncio.Event(), asyncio.Event()

            async def second() -> None:
                async with shared:
                    entered.set()
                    await left.wait()

            with pytest.raises(replacement.ReleaseUnlockedLock):
                async with shared:
                    shared.auto_release_time = 20
                    other = asyncio.ensure_future(second())
                    await asyncio.wait_for(entered.wait(), 10)
            assert await conn.exists("redlock:tasks")
            left.set()
            await other
            assert not await conn.exists("redlock:tasks")

    asyncio.run(test())


def test_block_that_is_left_elsewhere_releases_only_what_it_acquired(conn: Any) -> None:
    shared = replacement.Redlock(key="report", masters={conn}, auto_release_time=0.5)
    first, second, third = (ThreadPoolExecutor(1) for _ in range(3))
    first.submit(shared.__enter__).result(10)
    time.sleep(0.7)
    shared.auto_release_time = 20
    second.submit(shared.__enter__).result(10)

    with pytest.raises(replacement.ReleaseUnlockedLock):
        third.submit(shared.__exit__, None, None, None).result(10)  # that of the first one
    assert conn.exists("redlock:report")

    third.submit(shared.__exit__, None, None, None).result(10)
    assert not conn.exists("redlock:report")


def test_threads_of_a_pool_leave_the_blocks_of_several_requests(conn: Any) -> None:
    """The first request has lost its lock; the second one has entered on the same thread."""
    shared = replacement.Redlock(key="report", masters={conn}, auto_release_time=0.3)
    first, second = ExitStack(), ExitStack()
    first.enter_context(shared)
    time.sleep(0.5)
    shared.auto_release_time = 20
    second.enter_context(shared)

    with pytest.raises(replacement.ReleaseUnlockedLock):
        first.close()
    assert conn.exists("redlock:report")

    second.close()
    assert not conn.exists("redlock:report")


def test_lock_released_in_its_block_can_be_acquired_again_there(conn: Any) -> None:
    lock = replacement.Redlock(key="report", masters={conn})
    with lock:
        lock.release()
        assert lock.acquire()
    assert not conn.exists("redlock:report")


def test_block_of_a_busy_lock_raises(library: Any, redlock: Any) -> None:
    with redlock():
        for options in (
            {"context_manager_blocking": False},
            {"context_manager_timeout": 0.2},
        ):
            with pytest.raises(library.QuorumNotAchieved), redlock(**options):
                pytest.fail("two are in the block")


def test_extensions_are_limited(library: Any, redlock: Any) -> None:
    lock = redlock(auto_release_time=3, num_extensions=2)
    for _ in range(2):  # the limit holds for one acquisition
        lock.acquire()
        for _ in range(2):
            time.sleep(0.2)
            lock.extend()
            assert lock.locked() > 2.7
        with pytest.raises(library.TooManyExtensions):
            lock.extend()
        lock.release()


def test_lock_that_is_not_held_is_not_changed(library: Any, redlock: Any) -> None:
    lock = redlock()

    with pytest.raises(library.ExtendUnlockedLock):
        lock.extend()
    with pytest.raises(library.ReleaseUnlockedLock):
        lock.release()


def test_second_release_raises(library: Any, redlock: Any) -> None:
    lock = redlock()
    lock.acquire()
    lock.release()

    with pytest.raises(library.ReleaseUnlockedLock):
        lock.release()


def test_timeout_of_a_call_that_does_not_wait_is_refused(redlock: Any) -> None:
    with pytest.raises(ValueError):
        redlock(context_manager_blocking=False, context_manager_timeout=1)
    with pytest.raises(ValueError):
        redlock().acquire(blocking=False, timeout=1)


def test_errors_have_a_common_base_and_are_no_errors_of_redis(library: Any) -> None:
    for name in ("QuorumNotAchieved", "TooManyExtensions", "ExtendUnlockedLock"):
        error = getattr(library, name)("redlock:report", frozenset())
        assert isinstance(error, library.PrimitiveError)
        assert isinstance(error, RuntimeError)
        assert not isinstance(error, redis.RedisError)
        assert (error.key, error.masters, error.redis_errors) == ("redlock:report", frozenset(), ())


def test_broken_server_is_logged_unless_asked_otherwise(library: Any) -> None:
    with redis.Redis.from_url(NOWHERE) as conn:
        lock = library.Redlock(key="report", masters={conn})

        assert lock.acquire(blocking=False) is False
        assert lock.acquire(timeout=0.3) is False
        assert lock.locked() == 0
        with pytest.raises(library.QuorumIsImpossible) as raised:
            lock.acquire(blocking=False, raise_on_redis_errors=True)
        assert [type(error) for error in raised.value.redis_errors] == [redis.ConnectionError]

        strict = library.Redlock(key="report", masters={conn}, raise_on_redis_errors=True)
        with pytest.raises(library.QuorumIsImpossible):
            strict.acquire(timeout=0.3)


def test_release_whose_outcome_is_unknown_shows_the_error(library: Any, proxy: Any) -> None:
    with proxy.client(retry=None) as conn:
        lock = library.Redlock(key="unknown", masters={conn}, auto_release_time=1)
        lock.acquire()
        proxy.drop_request(lambda command: True, times=10_000)

        with pytest.raises(library.ReleaseUnlockedLock) as raised:
            lock.release()
        (error,) = raised.value.redis_errors
        assert isinstance(error, redis.ConnectionError)


def test_decorated_function_runs_once_at_a_time(library: Any, conn: Any) -> None:
    inside: list[int] = []

    @library.synchronize(key="report", masters={conn}, auto_release_time=20)
    def work(number: int) -> int:
        """Work."""
        inside.append(number)
        time.sleep(0.02)
        assert inside == [number]
        inside.remove(number)
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == list(range(8))
    assert (work.__name__, work.__doc__) == ("work", "Work.")


def test_decorated_function_that_is_busy_raises(library: Any, conn: Any, redlock: Any) -> None:
    @library.synchronize(key="report", masters={conn}, blocking=False)
    def work() -> None:
        pytest.fail("two are inside")

    with redlock(), pytest.raises(library.QuorumNotAchieved):
        work()


def test_lock_of_tasks(library: Any, server: Any) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            first, second = (
                library.AIORedlock(key="task", masters={conn}, num_extensions=1) for _ in range(2)
            )
            async with first as entered:
                assert entered is first
                assert await second.acquire(blocking=False) is False
                assert await second.acquire(timeout=0.3) is False
                assert 8 < await first.locked() < 10
                await first.extend()
                with pytest.raises(library.TooManyExtensions):
                    await first.extend()
                with pytest.raises(library.ExtendUnlockedLock):
                    await second.extend()
                with pytest.raises(library.ReleaseUnlockedLock):
                    await second.release()
            assert await first.locked() == 0
            assert await second.acquire() is True
            busy = library.AIORedlock(key="task", masters={conn}, context_manager_blocking=False)
            with pytest.raises(library.QuorumNotAchieved):
                await busy.__aenter__()
            await second.release()

    asyncio.run(main())


def test_calls_of_a_task_are_made_outside_of_the_event_loop(library: Any, server: Any) -> None:
    loop = asyncio.new_event_loop()
    conn = redis.asyncio.Redis.from_url(server.url)
    lock = library.AIORedlock(key="task", masters={conn}, auto_release_time=20)
    try:
        assert loop.run_until_complete(lock.acquire())
        assert loop.run_until_complete(lock.locked()) > 0
        loop.run_until_complete(lock.release())
        assert loop.run_until_complete(lock.locked()) == 0
    finally:
        loop.run_until_complete(conn.aclose())
        loop.close()


def test_release_with_a_time_limit_is_that_of_the_task(server: Any) -> None:
    """Before Python 3.12 ``wait_for`` runs it in a task of its own."""

    async def lose(lock: Any, conn: Any, entered: asyncio.Event) -> None:
        async with lock:
            await conn.delete("redlock:task")
            await entered.wait()
            with pytest.raises(replacement.ReleaseUnlockedLock):
                await asyncio.wait_for(lock.release(), 5)

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            lock, entered = replacement.AIORedlock(key="task", masters={conn}), asyncio.Event()
            task = asyncio.ensure_future(lose(lock, conn, entered))
            await asyncio.sleep(0)
            async with lock:
                entered.set()
                with pytest.raises(replacement.ReleaseUnlockedLock):
                    await task
                assert await conn.exists("redlock:task")

    asyncio.run(main())


def test_tasks_take_turns(library: Any, server: Any) -> None:
    inside: list[int] = []

    async def work(conn: Any, number: int) -> None:
        async with library.AIORedlock(key="task", masters={conn}, auto_release_time=20):
            inside.append(number)
            await asyncio.sleep(0.02)
            assert inside == [number]
            inside.remove(number)

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as conn:
            await asyncio.gather(*[work(conn, number) for number in range(8)])

    asyncio.run(main())


def test_both_libraries_exclude_each_other(conn: Any) -> None:
    pottery = original()
    for first, second in ((pottery, replacement), (replacement, pottery)):
        held = first.Redlock(key="report", masters={conn})
        other = second.Redlock(key="report", masters={conn})
        assert held.acquire()
        assert not other.acquire(blocking=False)
        with ThreadPoolExecutor() as pool:
            acquired = pool.submit(other.acquire, timeout=20)
            time.sleep(0.3)
            held.release()
            assert acquired.result(20) is True
        other.release()


def test_signatures_are_those_of_the_original() -> None:
    pottery = original()
    for name in ("Redlock", "AIORedlock"):
        theirs, ours = getattr(pottery, name), getattr(replacement, name)
        for method in (name for name in vars(theirs) if not name.startswith("_")):
            if callable(getattr(theirs, method)):
                assert [*inspect.signature(getattr(theirs, method)).parameters] == [
                    *inspect.signature(getattr(ours, method)).parameters
                ]
        assert {*inspect.signature(theirs).parameters} == {*inspect.signature(ours).parameters}
    assert {*inspect.signature(pottery.synchronize).parameters} == {
        *inspect.signature(replacement.synchronize).parameters
    }
    assert set(replacement.__all__) <= set(pottery.__all__) | {"PrimitiveError"}


def test_several_masters_are_refused(server: Any) -> None:
    with server.client() as first, server.client() as second:
        for kind in (replacement.Redlock, replacement.AIORedlock):
            with pytest.raises(ConfigurationError, match="has 2 clients"):
                kind(key="report", masters={first, second})


@pytest.mark.parametrize("key", ["cafe\u0301", "\u212b", 513 * "x"])
def test_key_that_would_be_another_one_is_refused(conn: Any, key: str) -> None:
    with pytest.raises(LockNameError, match="NFC"):
        replacement.Redlock(key=key, masters={conn})


def test_client_instead_of_masters_is_refused(conn: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"masters=\{client\}"):
        replacement.Redlock(key="report", masters=conn)


def test_client_is_that_of_the_configuration(
    server: Any, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)

    with replacement.Redlock(key="report"):
        assert conn.exists("redlock:report")


def test_configuration_does_not_keep_the_lock(conn: Any) -> None:
    configure(min_hold=60)
    try:
        with replacement.Redlock(key="report", masters={conn}):
            pass
        assert not conn.exists("redlock:report")
    finally:
        configure(min_hold=None)


def test_error_of_a_block_is_not_replaced(conn: Any) -> None:
    lock = replacement.Redlock(key="report", masters={conn})
    with pytest.raises(ZeroDivisionError), lock:
        lock.release()
        1 / 0  # noqa: B018


def test_functions_that_would_run_without_the_lock_are_refused() -> None:
    async def task() -> None: ...

    def items() -> Iterator[int]:
        yield 1

    for function in (task, items):
        with pytest.raises(ConfigurationError, match="use @redis_lock"):
            replacement.synchronize(key="report")(function)

"""python-redis-lock and the module that replaces it do the same."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest
import redis
from support.fronts import LEGACY

from redis_lock_decorators import ConfigurationError
from redis_lock_decorators._flow import fork
from redis_lock_decorators.compat import python_redis_lock

pytestmark = pytest.mark.skipif(LEGACY, reason="the original needs a newer redis-py")


@pytest.fixture(params=["original", "replacement"])
def library(request: pytest.FixtureRequest) -> Any:
    """Either of the two."""
    if request.param == "replacement":
        return python_redis_lock
    return pytest.importorskip("redis_lock")


def test_lock_is_held_by_one_object_at_a_time(library: Any, conn: Any) -> None:
    first, second = library.Lock(conn, "report"), library.Lock(conn, "report")

    assert first.acquire(blocking=False) is True
    assert second.acquire(blocking=False) is False
    assert first.locked() is True
    assert conn.ttl("lock:report") == -1

    first.release()
    assert first.locked() is False
    assert second.acquire() is True
    second.release()


def test_timeout_limits_the_wait(library: Any, conn: Any) -> None:
    library.Lock(conn, "report").acquire()

    began = time.monotonic()
    assert library.Lock(conn, "report").acquire(timeout=1) is False
    assert time.monotonic() - began > 0.9


def test_blocks_acquire_and_release(library: Any, conn: Any) -> None:
    with library.Lock(conn, "report", expire=20) as lock:
        assert lock.get_owner_id() == lock.id
        assert 18 <= conn.ttl("lock:report") <= 20
    assert lock.get_owner_id() is None


def test_block_that_does_not_wait_raises_if_the_lock_is_busy(library: Any, conn: Any) -> None:
    library.Lock(conn, "report").acquire()

    with pytest.raises(library.NotAcquired), library.Lock(conn, "report", blocking=False):
        pytest.fail("two are in the block")


def test_release_without_acquisition_raises(library: Any, conn: Any) -> None:
    with pytest.raises(library.NotAcquired):
        library.Lock(conn, "report").release()

    library.Lock(conn, "report").acquire()
    with pytest.raises(library.NotAcquired):
        library.Lock(conn, "report").release()


def test_second_release_raises(library: Any, conn: Any) -> None:
    lock = library.Lock(conn, "report", expire=20)
    lock.acquire()
    lock.release()

    with pytest.raises(library.NotAcquired):
        lock.release()


def test_expired_lock_is_not_released(library: Any, conn: Any) -> None:
    lock = library.Lock(conn, "report", expire=1)
    lock.acquire()
    time.sleep(1.2)
    rival = library.Lock(conn, "report")

    assert rival.acquire(blocking=False)
    with pytest.raises(library.NotAcquired):
        lock.release()
    assert rival.get_owner_id() == rival.id


def test_id_releases_what_another_object_acquired(library: Any, conn: Any) -> None:
    library.Lock(conn, "report", id="this host").acquire()

    assert library.Lock(conn, "report").get_owner_id() == "this host"
    library.Lock(conn, "report", id=b"this host").release()

    assert not library.Lock(conn, "report").locked()


def test_id_extends_what_another_object_acquired(library: Any, conn: Any) -> None:
    first = library.Lock(conn, "report", id="this host", expire=1)
    first.acquire()
    library.Lock(conn, "report", id="this host").extend(30)
    time.sleep(1.2)

    first.extend(20)

    assert 18 <= conn.ttl("lock:report") <= 20
    first.release()


def test_id_that_holds_the_lock_cannot_acquire_it_again(library: Any, conn: Any) -> None:
    lock = library.Lock(conn, "report", id="this host")
    lock.acquire()

    with pytest.raises(library.AlreadyAcquired):
        lock.acquire()
    with pytest.raises(library.AlreadyAcquired):
        library.Lock(conn, "report", id="this host").acquire(blocking=False)


def test_lock_is_acquired_again_after_its_release(library: Any, conn: Any) -> None:
    lock = library.Lock(conn, "report", expire=20)
    seen = []

    for _ in range(3):
        with lock:
            seen.append(lock.get_owner_id())

    assert seen == [lock.id] * 3


def test_bytes_that_are_no_text_become_an_id(library: Any, conn: Any) -> None:
    lock = library.Lock(conn, "report", id=b"\xff\x00")
    lock.acquire()

    assert lock.id == lock.get_owner_id() == "/wA="


def test_lock_is_renewed_on_request_only(library: Any, conn: Any) -> None:
    renewed = library.Lock(conn, "report", expire=1, auto_renewal=True)
    other = library.Lock(conn, "digest", expire=1)
    with renewed:
        other.acquire()
        time.sleep(2)
        assert renewed.get_owner_id() == renewed.id
        assert not other.locked()
    assert not renewed.locked()


def test_extension_sets_the_expiry(library: Any, conn: Any) -> None:
    with library.Lock(conn, "report", expire=20) as lock:
        lock.extend(100)
        assert 98 <= conn.ttl("lock:report") <= 100
        lock.extend()
        assert 18 <= conn.ttl("lock:report") <= 20


def test_extension_of_a_lock_that_is_not_held_raises(library: Any, conn: Any) -> None:
    with pytest.raises(library.NotAcquired):
        library.Lock(conn, "report", expire=20).extend()


def test_extension_of_a_lock_without_expiry_raises(library: Any, conn: Any) -> None:
    with library.Lock(conn, "report") as lock:
        with pytest.raises(library.NotExpirable):
            lock.extend(20)
        with pytest.raises(TypeError):
            lock.extend()


def test_reset_releases_the_lock_of_another_holder(library: Any, conn: Any) -> None:
    holder, waiter = library.Lock(conn, "report"), library.Lock(conn, "report")
    holder.acquire()

    with ThreadPoolExecutor() as pool:
        acquired = pool.submit(waiter.acquire, timeout=20)
        time.sleep(0.3)
        library.Lock(conn, "report").reset()

        assert acquired.result(20) is True
    with pytest.raises(library.NotAcquired):
        holder.release()
    waiter.release()


@pytest.mark.parametrize("name", ["cafe\u0301", 513 * "x"])
def test_reset_releases_exactly_its_own_lock(library: Any, conn: Any, name: str) -> None:
    lock, similar = library.Lock(conn, name), library.Lock(conn, "caf\u00e9")
    assert lock.acquire()
    assert similar.acquire()

    library.Lock(conn, name).reset()

    assert not lock.locked()
    assert similar.locked()
    library.reset_all(conn)
    assert not similar.locked()


def test_reset_all_releases_every_lock(library: Any, conn: Any) -> None:
    locks = [library.Lock(conn, f"report:{number}", expire=60) for number in range(3)]
    for lock in locks:
        lock.acquire()

    library.reset_all(conn)

    assert [lock.locked() for lock in locks] == [False] * 3


def test_arguments_that_make_no_sense_are_refused(library: Any, conn: Any) -> None:
    for arguments in ({"auto_renewal": True}, {"expire": -1}):
        with pytest.raises(ValueError):
            library.Lock(conn, "report", **arguments)
    with pytest.raises(TypeError):
        library.Lock(conn, "report", id=7)

    lock = library.Lock(conn, "report", expire=2)
    with pytest.raises(library.TimeoutNotUsable):
        lock.acquire(blocking=False, timeout=1)
    with pytest.raises(library.InvalidTimeout):
        lock.acquire(timeout=-1)
    with pytest.raises(library.TimeoutTooLarge):
        lock.acquire(timeout=3)


def test_negative_extension_is_refused(library: Any, conn: Any) -> None:
    with library.Lock(conn, "report", expire=20) as lock, pytest.raises(ValueError):
        lock.extend(-1)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [("name", b"report", TypeError), ("expire", -1, ValueError), ("expire", "5", ValueError)]
    + [("expire", 10**400, ValueError), ("expire", float("nan"), ValueError)]
    + [("signal_expire", value, ValueError) for value in ("x", float("nan"), -1)]
    + [("blocking", "no", ValueError), ("auto_renewal", "no", ValueError), ("id", "", ValueError)],
)
def test_wrong_arguments_are_refused_by_name(
    conn: Any, argument: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=argument):
        python_redis_lock.Lock(conn, **({"name": "report", argument: value}))


@pytest.mark.parametrize("value", ["1", b"1", [], {}, 1j, 10**400, object()])
def test_wrong_times_are_refused_by_name(conn: Any, value: Any) -> None:
    lock = python_redis_lock.Lock(conn, "report", expire=20)

    with pytest.raises(ConfigurationError, match="timeout"):
        lock.acquire(timeout=value)
    with lock, pytest.raises(ConfigurationError, match="expire"):
        lock.extend(value)


def test_timeout_that_is_no_number_is_refused(conn: Any) -> None:
    with pytest.raises(python_redis_lock.InvalidTimeout):
        python_redis_lock.Lock(conn, "report").acquire(timeout=float("nan"))


def test_acquisition_waits_through_an_outage(proxy: Any) -> None:
    lock = python_redis_lock.Lock(proxy.client(), "report", expire=20)
    assert lock.acquire()
    lock.release()
    proxy.drop_request(lambda command: len(command) > 1, times=3)

    assert lock.acquire(timeout=10)
    lock.release()


def test_lock_that_a_lost_reply_has_acquired_is_not_waited_for(proxy: Any, direct: Any) -> None:
    lock = python_redis_lock.Lock(proxy.client(), "report")

    def acquired_meanwhile(command: list[bytes]) -> bool:
        direct.set("lock:report", lock.id)
        return True

    proxy.drop_request(acquired_meanwhile, times=2)
    with pytest.raises(python_redis_lock.AlreadyAcquired):
        lock.acquire()
    lock.reset()


def test_block_that_has_expired_does_not_release_the_lock_of_another_thread(conn: Any) -> None:
    shared = python_redis_lock.Lock(conn, "report", expire=1.5)
    entered, second_is_in, left = [], threading.Event(), threading.Event()

    def use() -> None:
        with shared:
            entered.append(1)
            if len(entered) == 1:
                assert second_is_in.wait(10)
                with pytest.raises(python_redis_lock.NotAcquired, match="another block"):
                    shared.extend()
            else:
                second_is_in.set()
                assert left.wait(10)

    first = python_redis_lock.Lock(conn, "report", expire=20)
    assert first.acquire()
    with ThreadPoolExecutor(2) as threads:
        uses = [threads.submit(use) for _ in range(2)]
        time.sleep(0.3)  # both wait: an id that holds the lock is not waited for
        first.release()
        done, (second,) = wait(uses, 10, FIRST_COMPLETED)
        with pytest.raises(python_redis_lock.NotAcquired, match="another block"):
            done.pop().result()
        try:
            assert conn.exists("lock:report")
        finally:
            left.set()
        second.result(10)


@pytest.mark.parametrize("given", [None, "host 7"])
def test_forked_processes_acquire_with_ids_of_their_own_unless_one_is_given(
    conn: Any, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    lock = python_redis_lock.Lock(conn, "report", expire=20, id=given)
    id_here = lock.id
    monkeypatch.setattr(lock, "_process", -1)  # as after a fork

    with lock:
        assert (lock.id == id_here) is (given is not None)
        assert conn.get("lock:report") == lock.id.encode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")
def test_child_that_leaves_the_block_of_its_parent_does_not_release_the_lock(conn: Any) -> None:
    with contextlib.suppress(SystemExit):
        with python_redis_lock.Lock(conn, "report", expire=20):
            child = os.fork()
            if not child:
                raise SystemExit
            os.waitpid(child, 0)
            assert conn.exists("lock:report")
        return
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")
@pytest.mark.parametrize("given", [None, "host 7"])
def test_forked_child_does_not_release_what_its_parent_acquired(
    conn: Any, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    lock = python_redis_lock.Lock(conn, "report", expire=20, id=given)
    lock.acquire()
    monkeypatch.setattr(lock, "_process", -1)  # as after a fork

    if given is None:
        for use in (lock.release, lambda: lock.extend(30)):
            with pytest.raises(python_redis_lock.NotAcquired, match="forked from"):
                use()
    else:
        lock.release()

    assert bool(conn.exists("lock:report")) is (given is None)


def test_block_that_is_left_elsewhere_releases_only_what_it_acquired(conn: Any) -> None:
    shared = python_redis_lock.Lock(conn, "report", expire=0.5)
    first, second, third = (ThreadPoolExecutor(1) for _ in range(3))
    first.submit(shared.__enter__).result(10)
    time.sleep(0.7)
    shared._lock.timeout = 20
    second.submit(shared.__enter__).result(10)

    with pytest.raises(python_redis_lock.NotAcquired, match="another block"):
        third.submit(shared.__exit__, None, None, None).result(10)  # that of the first one
    assert conn.exists("lock:report")

    third.submit(shared.__exit__, None, None, None).result(10)
    assert not conn.exists("lock:report")
    first.submit(shared.acquire).result(10)
    second.submit(shared.release).result(10)
    assert not conn.exists("lock:report")


def test_threads_of_a_pool_leave_the_blocks_of_several_requests(conn: Any) -> None:
    """The first request has lost its lock; the second one has entered on the same thread."""
    shared = python_redis_lock.Lock(conn, "report", expire=0.3)
    first, second = ExitStack(), ExitStack()
    first.enter_context(shared)
    time.sleep(0.5)
    shared._lock.timeout = 20
    second.enter_context(shared)

    with pytest.raises(python_redis_lock.NotAcquired, match="another block"):
        first.close()
    assert conn.exists("lock:report")

    second.close()
    assert not conn.exists("lock:report")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be forked")
def test_child_of_a_block_acquires_and_releases_by_the_same_object(
    conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = python_redis_lock.Lock(conn, "report", expire=20)
    with contextlib.suppress(python_redis_lock.NotAcquired), lock:
        conn.delete("lock:report")  # as released by the parent
        with monkeypatch.context() as child:
            child.setattr(fork, "process_id", -1)
            assert lock.acquire()
            lock.release()
            assert not conn.exists("lock:report")


def test_blocks_call_the_methods_of_a_subclass(library: Any, conn: Any) -> None:
    class Counting(library.Lock):  # type: ignore[misc]
        def acquire(self, *arguments: Any, **options: Any) -> Any:
            called.append("acquire")
            return super().acquire(*arguments, **options)

        def release(self) -> None:
            called.append("release")
            super().release()

    called: list[str] = []
    with Counting(conn, "report", expire=20):
        assert called == ["acquire"]

    assert called == ["acquire", "release"]
    assert not conn.exists("lock:report")


def test_missing_client_is_refused(library: Any) -> None:
    with pytest.raises(ValueError):
        library.Lock(None, "report")


def test_client_that_decodes_replies(library: Any, server: Any) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as conn:
        with library.Lock(conn, "report", expire=20) as lock:
            assert lock.get_owner_id() == lock.id
        assert not lock.locked()


@pytest.mark.parametrize("expire", [None, 60])
def test_both_libraries_hand_the_lock_to_each_other(conn: Any, expire: int | None) -> None:
    original = pytest.importorskip("redis_lock")
    inside = threading.Lock()
    counted: list[bool] = []

    def work(library: ModuleType) -> None:
        for _ in range(5):
            with library.Lock(conn, "report", expire=expire):
                counted.append(inside.acquire(blocking=False))
                time.sleep(0.02)
                inside.release()

    libraries = [original, python_redis_lock]
    threads = [threading.Thread(target=work, args=[each], daemon=True) for each in libraries * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert counted == [True] * 20


def test_names_are_those_of_the_original() -> None:
    original = pytest.importorskip("redis_lock")
    public = {
        name
        for name, value in vars(original).items()
        if getattr(value, "__module__", None) == original.__name__
    }

    assert public == set(python_redis_lock.__all__)
    methods = {name for name in vars(original.Lock) if not name.startswith("_")}
    private = {"register_scripts", *[name for name in methods if name.endswith("_script")]}
    assert methods - private <= {"blocking", *dir(python_redis_lock.Lock)}


def test_errors_are_no_errors_of_redis(conn: Any) -> None:
    with pytest.raises(RuntimeError) as raised:
        python_redis_lock.Lock(conn, "report", id="mine").release()

    assert not isinstance(raised.value, redis.RedisError)
    assert isinstance(raised.value.__cause__, redis.exceptions.LockNotOwnedError)


def test_error_of_a_block_is_not_replaced(conn: Any) -> None:
    with pytest.raises(ZeroDivisionError), python_redis_lock.Lock(conn, "report") as lock:
        lock.release()
        1 / 0  # noqa: B018


def test_renewal_ends_with_the_lock_object(conn: Any) -> None:
    lock = python_redis_lock.Lock(conn, "report", expire=1, auto_renewal=True)
    lock.acquire()
    del lock
    time.sleep(2.5)

    assert not conn.exists("lock:report")


def test_release_succeeds_if_no_waiter_can_be_notified(conn: Any) -> None:
    lock = python_redis_lock.Lock(conn, "report")
    lock.acquire()
    conn.set("lock-signal:report", "x")
    conn.pipeline = None  # fails as a client does that has no pipelines

    lock.release()

    assert not lock.locked()


def test_waiters_are_not_notified_without_a_signal(conn: Any) -> None:
    with python_redis_lock.Lock(conn, "report", signal_expire=0):
        pass

    assert not conn.exists("lock-signal:report")

"""Threads on a double: who waits, what time passes, and which faults are seen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_decorators import (
    ConfigurationError,
    LockLostError,
    Locks,
    LockTimeoutError,
    RedisLock,
    acquire_lock,
    current_lease,
    force_release,
    redis_lock,
    release_lock,
)
from redis_lock_decorators.testing.fake import FakeServer

HOUR = 3600.0
#: A client of a server that does not exist.
NOWHERE = redis.Redis(host="192.0.2.1")


@redis_lock("order:{order_id}")
def ship(order_id: int) -> float:
    """Decorated when this module was imported, long before any double."""
    lease = current_lease()
    assert lease is not None
    return lease.remaining()


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []

    def work(function: Callable[[], Any]) -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=work, args=(function,)) for function in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_functions_decorated_at_import_use_the_double(double: FakeServer) -> None:
    assert 9 < ship(7) < 10
    assert not ship.lock_for(7).locked()


def test_clients_that_were_given_are_not_used(double: FakeServer) -> None:
    locks = Locks(client=NOWHERE, prefix="shop:")

    with locks.lock("a"):
        assert acquire_lock(NOWHERE, "a", 0, prefix="shop:") is False
    identifier = acquire_lock(NOWHERE, "a", 0)
    assert identifier
    assert release_lock(NOWHERE, "a", identifier)


@pytest.mark.timeout(20)
def test_waiting_for_an_hour_takes_no_time(double: FakeServer) -> None:
    double.keep_busy("report")
    before = double.now

    with pytest.raises(LockTimeoutError) as caught:
        RedisLock("report", acquire_time=HOUR).__enter__()

    assert caught.value.waited == pytest.approx(HOUR, abs=1)
    assert double.now - before == pytest.approx(HOUR, abs=5)


@pytest.mark.timeout(20)
def test_holding_for_an_hour_takes_no_time_and_renews(double: FakeServer) -> None:
    with RedisLock("report", expire=10) as lease:
        double.sleep(HOUR)

        lease.check()
        assert lease.owned()


@pytest.mark.timeout(20)
def test_lock_expires_without_renewal(double: FakeServer) -> None:
    lease = RedisLock("report", expire=30, auto_renew=False).acquire()
    assert lease is not None

    with RedisLock("report", acquire_time=60):
        assert lease.lost


@pytest.mark.timeout(20)
def test_threads_are_served_in_turn_in_virtual_time(double: FakeServer) -> None:
    before = double.now

    def work() -> None:
        with RedisLock("report", acquire_time=HOUR):
            double.sleep(60)

    assert in_threads(*[work] * 8) == [None] * 8
    assert double.now - before == pytest.approx(480, abs=20)


def test_time_does_not_jump_while_the_holder_works(double: FakeServer) -> None:
    with RedisLock("report"):
        entered = threading.Event()
        waiter = threading.Thread(
            target=lambda: RedisLock("report", acquire_time=HOUR).call(entered.set)
        )
        waiter.start()
        before = double.now
        assert not entered.wait(0.02)  # work in real time
        assert double.now - before < HOUR / 2
    waiter.join()
    assert entered.is_set()


@pytest.mark.timeout(20)
def test_holder_that_waits_for_a_waiter_lets_time_pass(double: FakeServer) -> None:
    with RedisLock("report"):
        (error,) = in_threads(RedisLock("report", acquire_time=HOUR).acquire)

    assert error is None


def test_lost_lease_is_reported(double: FakeServer) -> None:
    lost: list[str] = []

    with (
        pytest.raises(LockLostError),
        RedisLock("report", on_lost=lambda _, why: lost.append(why)) as lease,
    ):
        double.lose("report")
        assert lease.lost
        with pytest.raises(LockLostError):
            lease.check()

    assert lost == ["its key is gone"]


def test_stalled_renewal_loses_a_lease_in_the_end(double: FakeServer) -> None:
    with pytest.raises(LockLostError), RedisLock("report", expire=10) as lease:
        double.stall_renewals(60)
        double.sleep(5)
        assert not lease.lost
        double.sleep(5)
        assert lease.lost


def test_short_stall_loses_nothing(double: FakeServer) -> None:
    with RedisLock("report", expire=10) as lease:
        double.stall_renewals(5)
        double.sleep(60)
        lease.check()


def test_busy_lock_becomes_free_in_time(double: FakeServer) -> None:
    double.keep_busy("report", 5)
    before = double.now

    with RedisLock("report"):
        assert double.now - before == pytest.approx(5, abs=1)


def test_busy_lock_is_released_by_force(double: FakeServer) -> None:
    double.keep_busy("report")
    assert RedisLock("report", acquire_time=0).acquire() is None

    assert force_release("report")

    with RedisLock("report", acquire_time=0):
        pass


def test_locking_can_be_turned_off(double: FakeServer) -> None:
    double.keep_busy("report")
    double.turn_off()
    with RedisLock("report", acquire_time=0), RedisLock("report", acquire_time=0) as lease:
        double.sleep(60)
        lease.check()

    double.turn_on()
    assert RedisLock("report", acquire_time=0).acquire() is None


def test_fences_grow(double: FakeServer) -> None:
    fences = []
    for _ in range(3):
        with RedisLock("report", fencing=True) as lease:
            fences.append(lease.fence)

    assert sorted(set(fences)) == fences  # type: ignore[type-var]


def test_connections_are_made_again_after_the_double() -> None:
    def connect() -> redis.Redis:
        raise ZeroDivisionError

    locks = Locks(get_redis_connection=connect)
    with FakeServer():
        assert locks.lock("report").owner() is None

    with pytest.raises(ZeroDivisionError):
        locks.lock("report").owner()


def test_no_thread_remains() -> None:
    with FakeServer() as double, RedisLock("report"):
        double.sleep(60)

    assert [thread for thread in threading.enumerate() if "fake" in thread.name] == []


def test_greenlets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redis_lock_decorators.testing.fake.double.are_threads_green", lambda: True)

    with pytest.raises(ConfigurationError, match="native threads"):
        FakeServer().__enter__()

"""The locks of other packages' interfaces use the double, too."""

from __future__ import annotations

import logging

import pytest
import redis

from redis_lock_decorators.compat import pottery, python_redis_lock

#: A client of a server that does not exist.
NOWHERE = redis.Redis(host="192.0.2.1", socket_connect_timeout=0.5)

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("name", ["report", "re\u0301port"])
def test_lock_of_python_redis_lock_makes_no_connection(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = (python_redis_lock.Lock(NOWHERE, name, expire=20) for _ in range(2))

    with first:
        assert second.get_owner_id() == first.id
        with pytest.raises(python_redis_lock.AlreadyAcquired):
            first.acquire()
        first.extend(30)
        second.reset()
        with pytest.raises(python_redis_lock.NotAcquired):
            first.release()
        assert not first.locked()
        assert second.acquire(blocking=False)
        second.release()
        assert first.acquire()

    assert first.get_owner_id() is None
    assert caplog.messages == []


def test_lock_of_python_redis_lock_without_expiry_is_not_extended() -> None:
    lock = python_redis_lock.Lock(NOWHERE, "report")

    with lock, pytest.raises(python_redis_lock.NotExpirable):
        lock.extend(20)


def test_lock_of_pottery_makes_no_connection() -> None:
    lock = pottery.Redlock(key="report", masters={NOWHERE})

    with lock:
        assert lock.locked() > 0
        lock.extend()
        assert not pottery.Redlock(key="report", masters={NOWHERE}).acquire(blocking=False)

    assert not lock.locked()

"""The state of locks is read on every topology, whatever the client decodes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from support.waiting import until

from redis_lock_decorators import ConfigurationError, LockNameError, RedisLock
from redis_lock_decorators.inspection import (
    LockStatus,
    find_locks,
    hand_over_times,
    lock_status,
    waiters,
)


@contextmanager
def waiting(topology: Any, client: Any, name: str, count: int) -> Iterator[None]:
    """So many threads join the queue of a lock, one after the other."""
    lock = RedisLock(name, client=topology.client(), acquire_time=60)
    threads = [threading.Thread(target=lambda: lock.acquire().release()) for _ in range(count)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        until(lambda number=number: lock_status(client, name).waiting == number)
    yield
    for thread in threads:
        thread.join()


def found(client: Any, pattern: str, **options: Any) -> list[LockStatus]:
    pages = find_locks(client, pattern, **options)
    return sorted((status for page in pages for status in page), key=lambda one: one.lock_name)


def test_free_lock_has_no_holder(client: Any, name: str) -> None:
    status = lock_status(client, name)

    assert status == LockStatus(name, f"sys:lock:{name}", None, False, None, None, 0, None)
    assert not status.is_held
    assert waiters(client, name) == []
    assert found(client, name) == []


def test_held_lock_has_its_holder_time_and_fence(client: Any, name: str) -> None:
    with RedisLock(name, client=client, fencing=True, expire=30) as lease:
        status = lock_status(client, name)

        assert (status.identifier, status.fence) == (lease.identifier, lease.fence)
        assert status.is_held
        assert status.remaining is not None
        assert 20 < status.remaining <= 30
        assert [one.identifier for one in found(client, name)] == [lease.identifier]


def test_waiters_are_in_the_order_of_their_arrival(topology: Any, client: Any, name: str) -> None:
    with RedisLock(name, client=client) as lease, waiting(topology, client, name, 3):
        queue = waiters(client, name)
        (status,) = found(client, name)

        assert [one.ticket for one in queue] == sorted(one.ticket for one in queue)
        assert len({one.identifier for one in queue} | {lease.identifier}) == 4
        assert {one.channel for one in queue} == {queue[0].channel}
        assert (status.waiting, status.head) == (3, queue[0].ticket)
        assert waiters(client, name, count=2) == queue[:2]
        lease.release()


def test_lock_after_its_release_is_kept_by_min_hold(client: Any, name: str) -> None:
    with RedisLock(name, client=client, min_hold=30) as lease:
        pass

    status = lock_status(client, name)
    assert (status.identifier, status.is_min_hold, status.is_held) == (
        lease.identifier,
        True,
        False,
    )
    assert found(client, name)[0].is_min_hold
    client.delete(f"sys:lock:{name}")


def test_locks_of_all_nodes_are_found_by_pattern_and_prefix(client: Any, name: str) -> None:
    names = sorted(f"{name}:{number}" for number in range(12))
    for one in (*names, f"{name}*"):
        client.set(f"own[1]:{one}", "external", px=60_000)
    client.set(f"sys:lock:{name}:3", "external", px=60_000)

    assert [one.lock_name for one in found(client, f"{name}:*", prefix="own[1]:")] == names
    assert [one.lock_name for one in found(client, f"{name}\\*", prefix="own[1]:")] == [f"{name}*"]
    assert found(client, f"{name}:3", prefix="own[1]:")[0].identifier == "external"
    for one in (*names, f"{name}*"):
        client.delete(f"own[1]:{one}")
    client.delete(f"sys:lock:{name}:3")


def test_lock_without_end_and_names_of_other_bytes_are_found(client: Any, name: str) -> None:
    client.set(f"sys:lock:{name}".encode() + b"\xff", b"\xfe")

    (status,) = found(client, f"{name}*")

    assert found(client, f"{name}\udcff") == [status]
    assert (status.lock_name, status.identifier) == (f"{name}\udcff", "\udcfe")
    assert status.remaining is None
    client.delete(f"sys:lock:{name}".encode() + b"\xff")


def test_other_data_is_no_lock(client: Any, name: str) -> None:
    client.hset(f"sys:lock:{name}", "field", 1)

    assert found(client, f"{name}*") == []
    with pytest.raises(LockNameError, match="other data"):
        lock_status(client, name)
    client.delete(f"sys:lock:{name}")


@pytest.mark.parametrize("lock_name", ["", ["a", "b"], 7])
def test_name_that_is_not_one_text_is_refused(client: Any, lock_name: Any) -> None:
    for function in (lock_status, waiters):
        with pytest.raises(LockNameError):
            function(client, lock_name)


def test_client_of_asyncio_is_refused(topology: Any, name: str) -> None:
    client = topology.async_client()

    with pytest.raises(ConfigurationError, match="blocking"):
        lock_status(client, name)
    with pytest.raises(ConfigurationError, match="blocking"):
        next(find_locks(client, name))


def test_missing_permission_is_an_error_not_a_free_lock(server: Any, direct: Any) -> None:
    direct.execute_command(
        *("ACL", "SETUSER", "scanner", "reset", "on", ">any", "~*", "+scan", "+pttl", "+zcard")
    )
    direct.set("sys:lock:seen", "external", px=60_000)
    client = server.client(username="scanner", password="any")  # noqa: S106

    with pytest.raises(redis.ResponseError, match=re.compile("permission", re.IGNORECASE)):
        lock_status(client, "seen")
    with pytest.raises(redis.ResponseError, match=re.compile("permission", re.IGNORECASE)):
        list(find_locks(client))


def test_hand_overs_to_waiters_are_recorded(topology: Any, client: Any, name: str) -> None:
    assert hand_over_times(client, name) == []
    with RedisLock(name, client=client) as lease, waiting(topology, client, name, 3):
        lease.release()

    times = hand_over_times(client, name)

    assert times == sorted(times)
    assert 3 <= len(times) <= 4
    assert hand_over_times(client, name, count=2) == times[-2:]

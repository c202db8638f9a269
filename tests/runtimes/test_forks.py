"""Child processes started before and after their parent used a lock, and while it holds one."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from support import children
from support.leftovers import lasting
from support.workers import in_child

from redis_lock_decorators import RedisLock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # of forks with threads
]

METHODS = ["fork", "forkserver", "spawn"]
#: Seconds of a lease: shorter than the work done under it.
EXPIRE = 0.9
#: The same for a parent whose children compete for CPU while they import.
LONGER = 2.5
#: When a child is started; the combinations in RARE are left to the slow tests.
WHEN = ["before its first use", "after", "while it holds"]
RARE = {(method, when) for method in ("forkserver", "spawn") for when in WHEN[:2]}
RARE |= {("spawn", "while it holds")}
WAYS = [
    pytest.param(method, when, marks=[pytest.mark.slow] * ((method, when) in RARE))
    for method in METHODS
    for when in WHEN
]


@pytest.fixture
def looking(frail: Any) -> Any:
    return frail.client()


@pytest.fixture(params=["fork", pytest.param("forkserver", marks=pytest.mark.slow), "spawn"])
def context(request: pytest.FixtureRequest) -> Any:
    return multiprocessing.get_context(request.param)


@pytest.mark.parametrize(("method", "when"), WAYS)
def test_children_and_parent_exclude_each_other(frail, looking, name, method, when):
    client, context = frail.client(), multiprocessing.get_context(method)
    losses: list[str] = []
    if when == "after":
        with RedisLock(name, client=client, expire=EXPIRE):
            time.sleep(0.4)  # its background thread has started
    held = RedisLock(
        "of the parent", client=client, expire=LONGER, on_lost=lambda _, why: losses.append(why)
    )
    lease = held.acquire() if when == "while it holds" else None
    workers = [
        context.Process(target=children.count_up, args=(frail.port, name, 5)) for _ in range(3)
    ]

    for worker in workers:
        worker.start()
    children.count_up(frail.port, name, 5)
    for worker in workers:
        worker.join(60)

    assert [worker.exitcode for worker in workers] == [0] * 3
    assert looking.get(f"count:{name}") == b"20"
    if lease is not None:
        time.sleep(LONGER)
        assert (lease.lost, lease.owned(), losses) == (False, True, [])
        lease.release()
    assert lasting(looking, "sys:lock:*") == []


def test_pool_workers_and_parent_hold_and_renew(frail, looking, name, context):
    client = frail.client()
    with RedisLock("of the parent", client=client, expire=LONGER) as lease:
        with context.Pool(3) as pool:
            works = [(frail.port, name, EXPIRE)] * 3
            assert pool.starmap(children.hold_for_long, works) == [(1, False, True)] * 3
        assert (lease.lost, lease.owned()) == (False, True)
    assert lasting(looking, "sys:lock:*") == []


def test_locks_are_pickled_for_executor_workers(frail, looking, name, context):
    lock = RedisLock(name, get_redis_connection=children.connect, expire=EXPIRE, acquire_time=60)
    with (
        RedisLock("of the parent", client=frail.client(), expire=LONGER) as lease,
        ProcessPoolExecutor(
            3, context, initializer=children.prepare, initargs=(frail.port,)
        ) as executor,
    ):
        assert list(executor.map(children.enter, [lock] * 12)) == [1] * 12
        with pytest.raises(TypeError, match="belongs to the process that acquired it"):
            executor.submit(children.enter, lease).result()
        assert lease.owned()
    assert lasting(looking, "sys:lock:*") == []


def test_grandchild_owns_no_lock_of_parent_or_child(frail, name):
    client = frail.client()

    def work() -> Any:
        with RedisLock(f"{name}:child", client=client, expire=EXPIRE) as own:
            grandchild = in_child(lambda: (lease.lost, own.lost, lease.owned(), own.owned()))
            time.sleep(EXPIRE * 1.3)
            return grandchild, own.owned()

    with RedisLock(name, client=client, expire=EXPIRE) as lease:
        assert in_child(work) == "('(True, True, False, False)', True)"
        assert lease.owned()


def test_waiting_child_is_notified_of_its_parents_release(frail, looking, name):
    client = frail.client()

    def work() -> bool:
        with RedisLock(name, client=client, acquire_time=60) as lease:
            return lease.owned()

    with RedisLock(name, client=client, expire=EXPIRE, acquire_time=60) as lease:
        context = multiprocessing.get_context("fork")
        child = context.Process(target=children.exits_by, args=(work,))
        child.start()
        end = time.monotonic() + 30
        while not looking.zcard(f"{{{lease.key}}}:queue") and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(EXPIRE)
        assert lease.owned()
    child.join(30)

    assert child.exitcode == 0


@pytest.mark.slow
def test_parent_that_forks_repeatedly_loses_nothing(frail, name):
    client = frail.client()
    with RedisLock(name, client=client, expire=EXPIRE) as lease:
        for _ in range(100):
            assert in_child(lambda: lease.lost) == "True"
            time.sleep(0.05)
        assert (lease.lost, lease.owned()) == (False, True)


def test_all_start_methods_are_tested():
    assert set(multiprocessing.get_all_start_methods()) <= set(METHODS), sys.platform


def test_child_is_named_as_the_holder_of_its_own_lock(frail: Any, name: str) -> None:
    lock = RedisLock(name, get_redis_connection=frail.client, owner_info=True)

    def holder() -> Any:
        with lock:
            return (lock.owner_info() or {}).get("pid"), os.getpid()

    assert holder() == (os.getpid(), os.getpid())
    named, child = in_child(holder).strip("()").split(", ")
    assert named == child != str(os.getpid())

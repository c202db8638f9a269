"""Events of real locks: hooks neither break nor delay them, and nothing is left of both."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar

import pytest
import redis
from support.fronts import do
from support.leftovers import TIDY_FRONTS, until
from support.observed import kinds

import redis_lock_decorators
from redis_lock_decorators import Locks, LockTimeoutError
from redis_lock_decorators._io.background.hook_calls import flush

FRONTS = TIDY_FRONTS
request: ContextVar[str] = ContextVar("request", default="")


def lock_of(front, server, name, seen, **options):
    options = {"expire": 0.6, **options}
    client = front.client(server)
    return front.package.RedisLock(name, client=client, hooks=[seen.append], **options)


async def test_block_is_observed_from_its_beginning_to_its_end(front, server, name):
    seen = []

    async with front.held(lock_of(front, server, name, seen)):
        await front.sleep(0.5)

    await until(front, lambda: "Released" in kinds(seen))
    assert kinds(seen)[:3] == ["Acquiring", "Acquired", "Renewed"]
    assert kinds(seen)[-1] == "Released"
    assert seen[-1].held >= 0.5
    assert {event.lock_name for event in seen} == {name}
    assert abs(seen[0].time - time.time()) < 60


async def test_label_is_the_template_and_not_the_filled_in_name(front, server, name):
    seen = []
    locks = Locks(client=front.client(server), hooks=[seen.append])

    if front.name == "blocking":

        @locks.redis_lock(f"{name}:{{number}}")
        def work(number):
            return number

        @locks.redis_lock
        def named_by_its_argument(number):
            return number

    else:

        @locks.redis_lock(f"{name}:{{number}}")
        async def work(number):
            return number

        @locks.redis_lock
        async def named_by_its_argument(number):
            return number

    await do(work(7))
    await do(named_by_its_argument(f"{name}:8"))

    await until(front, lambda: kinds(seen).count("Released") == 2)
    assert {event.lock_name: event.label for event in seen} == {
        f"{name}:7": f"{name}:{{number}}",
        f"{name}:8": f"{__name__}.{work.__qualname__.replace('work', 'named_by_its_argument')}",
    }


async def test_hooks_run_in_the_context_of_the_acquisition(front, server, name):
    seen = []
    request.set("of the caller")
    hooks = [lambda event: seen.append((type(event).__name__, request.get()))]
    lock = front.package.RedisLock(name, client=front.client(server), hooks=hooks)

    async with front.held(lock):
        request.set("later")

    await until(front, lambda: len(seen) == 3)
    assert seen == [(kind, "of the caller") for kind in ("Acquiring", "Acquired", "Released")]


async def test_busy_lock_is_observed_as_timed_out(front, server, direct, name):
    seen = []
    lock = lock_of(front, server, name, seen, acquire_time=0.1)
    direct.set(f"sys:lock:{name}", "another", px=20_000)

    with pytest.raises(LockTimeoutError):
        async with front.held(lock):
            pass

    await until(front, lambda: kinds(seen) == ["Acquiring", "TimedOut"])


async def test_loss_is_observed_while_the_lock_is_held(front, server, direct, name):
    seen = []
    lock = lock_of(front, server, name, seen)
    lease = await do(lock.acquire())

    direct.delete(lease.key)
    await until(front, lambda: "Lost" in kinds(seen))
    with pytest.raises(redis_lock_decorators.LockLostError):
        await do(lease.release())

    assert seen[-1].why == "its key is gone"
    assert flush(20)
    assert kinds(seen)[-1] == "Lost"


async def test_failed_release_is_observed(front, frail, name):
    seen = []
    lease = await do(lock_of(front, frail, name, seen, expire=5).acquire())
    frail.stop()

    with pytest.raises((redis.exceptions.ConnectionError, OSError)):
        await do(lease.release())

    await until(front, lambda: "Released" in kinds(seen))
    assert seen[-1].error


async def test_hook_that_hangs_delays_no_renewal(front, server, name):
    hang = threading.Event()
    lock = front.package.RedisLock(
        name, client=front.client(server), expire=0.6, hooks=[lambda _: hang.wait(20)]
    )
    try:
        async with front.held(lock) as lease:
            await front.sleep(1.5)
            assert not lease.lost
    finally:
        hang.set()
    assert flush(20)


async def test_hook_that_fails_breaks_no_lock(front, server, name):
    def hook(event):
        raise RuntimeError("a mistake")

    lock = front.package.RedisLock(name, client=front.client(server), hooks=[hook])

    async with front.held(lock) as lease:
        assert not lease.lost


async def test_lease_that_a_hook_refers_to_is_not_kept(front, server, name):
    class Worker:
        def __init__(self):
            self.lock = lock_of(front, server, name, self, expire=0.6)
            self.seen = []

        def append(self, event):
            self.seen.append(event)

    worker = Worker()
    worker.lease = await do(worker.lock.acquire())
    assert flush(20)
    gone = weakref.ref(worker)

    del worker
    gc.collect()

    await until(front, lambda: gone() is None)


async def test_dropped_lease_is_observed_as_lost_by_the_hooks_of_its_project(front, server, name):
    seen = []
    locks = Locks(client=front.client(server), hooks=[seen.append])
    kind = {"blocking": locks.lock}.get(front.name, locks.async_lock)

    await do(kind(name, expire=0.6, on_lost=lambda lease, why: None).acquire())
    gc.collect()

    await until(front, lambda: "Lost" in kinds(seen))
    assert "garbage-collected" in seen[-1].why


EXITING = """
import sys
import time
import redis
from redis_lock_decorators import RedisLock

def hook(event):
    time.sleep(0.05)
    print(type(event).__name__, flush=True)
with RedisLock("exiting", client=redis.Redis(port=int(sys.argv[1])), hooks=[hook]):
    pass
"""


def test_events_are_reported_before_the_program_ends(server):
    command = [sys.executable, "-c", EXITING, str(server.port)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["Acquiring", "Acquired", "Released"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_reports_its_own_events_only(server, name):
    seen = []
    client = server.client()
    lock = redis_lock_decorators.RedisLock(name, client=client, hooks=[seen.append])
    held = redis_lock_decorators.RedisLock(f"{name}:held", client=client, hooks=[seen.append])
    lease = held.acquire()
    assert flush(20)
    seen.clear()

    child = os.fork()
    if child == 0:
        status = 1
        try:
            del lease
            gc.collect()
            with lock:
                pass
            status = 0 if flush(20) and kinds(seen) == ["Acquiring", "Acquired", "Released"] else 2
        finally:
            os._exit(status)

    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert flush(20)
    assert set(kinds(seen)) <= {"Renewed"}
    lease.release()


async def test_thousands_of_observed_blocks_leave_no_memory(front, server, name):
    client, counts = front.client(server), []
    lock = front.package.RedisLock(name, client=client, expire=60, hooks=[lambda event: None])
    for _ in range(3):
        for _ in range(300):
            async with front.held(lock):
                pass
        assert flush(20)
        gc.collect()
        counts.append(len(gc.get_objects()))

    assert counts[2] < counts[1] + 300

"""Leases are kept while their holders work, by few, and by nobody any longer than that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time

import pytest
from support.fronts import LEGACY, do
from support.leftovers import (
    ASYNCIO,
    BLOCKING,
    TIDY_FRONTS,
    connections,
    other_tasks,
    own_threads,
    until,
)
from support.workers import in_child

from redis_lock_decorators import LockLostError, LockNotOwnedError

FRONTS = TIDY_FRONTS

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
asyncio_only = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
counts_cancellations = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="tasks do not count their cancellations before Python 3.11"
)

pytestmark = pytest.mark.usefixtures("tidy")


def scripts_run(direct):
    """How many scripts clients have run."""
    counts = direct.info("commandstats")
    return sum(counts.get(f"cmdstat_{word}", {"calls": 0})["calls"] for word in ("evalsha", "eval"))


async def test_a_lock_of_3_seconds_holds_for_a_body_of_5(front, server, rival, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=3)

    async with front.held(lock) as lease:
        rival.wants(server, name)
        await front.sleep(5)
        lease.check()
        left = time.monotonic()

    assert rival.entered() >= left


async def test_ten_thousand_leases_are_kept_by_one_with_few_requests(front, server, direct, name):
    client, before = front.client(server), connections(direct)
    locks = [
        front.package.RedisLock(f"{name}:{number}", client=client, expire=3)
        for number in range(10_000)
    ]
    leases = [await do(lock.acquire()) for lock in locks]
    started, requests, tasks = time.monotonic(), scripts_run(direct), [0]

    while time.monotonic() < started + 4.5:
        await front.sleep(0.05)
        if front is ASYNCIO:
            tasks.append(len(other_tasks()))

    assert scripts_run(direct) - requests < 1_000
    awake = [name for name in own_threads() if not name.endswith("spare")]
    assert awake == (["redis_lock_decorators"] if front is BLOCKING else [])
    assert len(connections(direct) - before) <= (2 if front is BLOCKING else 1)
    assert max(tasks) < 50  # twenty scripts renew them all
    assert not any(lease.lost for lease in leases)
    stored = direct.mget([lease.key for lease in leases])
    assert [value.decode() for value in stored] == [lease.identifier for lease in leases]
    for lease in leases:
        await do(lease.release())


async def is_let_expire(front, direct, key, identifier, expire):
    """Whether nobody renews a key: it is gone when its last lease is over."""
    assert direct.get(key) == identifier.encode()
    await front.sleep(expire + 0.5)
    return not direct.exists(key)


async def test_a_released_lease_is_renewed_no_more(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6)
    async with front.held(lock) as lease:
        await front.sleep(0.5)

    direct.set(lease.key, lease.identifier, px=600)

    assert await is_let_expire(front, direct, lease.key, lease.identifier, 0.6)


async def test_a_lease_that_nobody_has_any_more_is_renewed_no_more(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.9)
    lease = await do(lock.acquire())
    await front.sleep(0.8)
    client_state = lease.key, lease.identifier

    del lease
    gc.collect()

    assert await is_let_expire(front, direct, *client_state, 0.9)


def test_the_lease_of_a_thread_that_is_dead_is_renewed_no_more_than_others(server, direct, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client(), expire=0.9)
    thread = threading.Thread(target=lambda: (lock.acquire(), time.sleep(0.8)))
    thread.start()
    thread.join()

    gc.collect()

    assert direct.exists(f"sys:lock:{name}")
    time.sleep(1.4)
    assert not direct.exists(f"sys:lock:{name}")


async def test_max_hold_ends_the_lease_of_work_that_hangs(front, server, rival, name):
    told = []
    lock = front.package.RedisLock(
        name,
        client=front.client(server),
        expire=0.6,
        max_hold=1.2,
        on_lost=lambda *client_state: told.append(client_state),
    )
    started = time.monotonic()

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            rival.wants(server, name)
            await until(front, lambda: lease.lost)

    assert lease.deadline - 0.02 <= rival.entered()  # a loss may be told a moment early
    assert 0.6 < lease.deadline - started <= 1.25
    await until(front, lambda: told)
    assert "max_hold" in told[0][1]


async def test_without_auto_renew_a_lease_ends_when_it_said(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6, auto_renew=False)
    lease = await do(lock.acquire())
    first = lease.deadline

    await until(front, lambda: lease.lost)

    assert lease.deadline == first
    await until(front, lambda: not direct.exists(lease.key))


HELD = {
    "blocking": """
import os, signal, sys, time, redis
from redis_lock_decorators import RedisLock
client = redis.Redis(port={port})
def inside():
    print("inside", flush=True)
    time.sleep(0.5)
{body}
""",
    "asyncio": """
import asyncio, os, signal, sys, redis.asyncio
from redis_lock_decorators.asyncio import RedisLock
async def inside():
    print("inside", flush=True)
    await asyncio.sleep(0.5)
async def main():
    client = redis.asyncio.Redis(port={port})
{body}
asyncio.run(main())
""",
}
#: How a program ends while it holds a lock: its code, exit status, and whether the key is freed.
ENDS = {
    "its-end": ("lease = {wait}RedisLock({name!r}, client=client, expire=1.2).acquire()", 0, False),
    "sys-exit": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {exit}", 3, True),
    "os-exit": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {quit}", 4, False),
    "sigterm": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {kill}", -15, False),
}
BODIES = {
    "exit": "inside(); sys.exit(3)",
    "quit": "inside(); os._exit(4)",
    "kill": "inside(); os.kill(os.getpid(), signal.SIGTERM)",
}


def program(world, end, port, name):
    """A program that holds a lock for longer than a third of its lease, and ends."""
    waits = world == "asyncio"
    bodies = {key: ("await " if waits else "") + body for key, body in BODIES.items()}
    line = ENDS[end][0]
    wait = "" if not waits else "async " if "with" in line else "await "
    lines = [line.format(wait=wait, name=name, **bodies)]
    if end == "its-end":
        lines.append("await inside()" if waits else "inside()")
        if waits:
            lines.append("await client.aclose()")
    indent = "    " if waits else ""
    return HELD[world].format(port=port, body="\n".join(indent + line for line in lines))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("world", [front.name for front in FRONTS])
@pytest.mark.parametrize("mode", [[], ["-X", "dev"]], ids=["", "dev"])
def test_a_program_that_ends_while_it_holds_ends_in_silence_and_its_lease_with_it(
    server, direct, name, world, end, mode
):
    code = program(world, end, server.port, name)
    with subprocess.Popen(
        [sys.executable, *mode, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"inside\n"
        inside = time.monotonic()
        _, said = process.communicate(timeout=60)
        took = time.monotonic() - inside

    assert said == b""
    assert process.returncode == ENDS[end][1]
    assert took < 5  # half a second of work, and nobody is waited for
    if ENDS[end][2]:
        assert not direct.exists(f"sys:lock:{name}")
    assert direct.pttl(f"sys:lock:{name}") <= 1_200
    time.sleep(1.3)
    assert not direct.exists(f"sys:lock:{name}")


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_child_neither_renews_nor_lets_go_the_lease_it_inherits(
    front, server, direct, name
):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.9)

    async def refused():
        with pytest.raises(LockNotOwnedError):
            await do(lease.release())
        with pytest.raises(LockNotOwnedError):
            await do(lease.extend())
        return lease.lost

    async with front.held(lock) as lease:
        first = lease.deadline

        told = in_child(lambda: _run(front, refused()))
        owned = direct.get(lease.key)
        await until(front, lambda: time.monotonic() > first + 0.3)

        assert told == "True"
        assert owned == lease.identifier.encode()
        assert await do(lease.owned())
        assert not lease.lost


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_child_keeps_leases_of_its_own_and_the_parent_goes_on_with_its(
    front, server, direct, name
):
    lock = front.package.RedisLock(name, client=front.client(server), expire=2)

    async def own():
        client = front.client(server)
        held = front.package.RedisLock(f"{name}:child", client=client, expire=0.6)
        async with front.held(held) as mine:
            first = mine.deadline
            await until(front, lambda: time.monotonic() > first + 0.3)
            return await do(mine.owned()), mine.lost

    async with front.held(lock) as lease:
        await front.sleep(0.8)  # the thread that renews runs when the child is made
        told = in_child(lambda: _run(front, own()))

        assert told == "(True, False)"
        assert await do(lease.owned())
        await until(front, lambda: lease.deadline > time.monotonic() + 1.4)


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_parents_lease_ends_though_its_child_lives(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6)
    lease = await do(lock.acquire())

    def outlive():
        lease_of_child = lease
        time.sleep(1.4)
        return lease_of_child.lost, direct.exists(lease_of_child.key)

    await do(lease.release())
    direct.set(lease.key, lease.identifier, px=600)

    assert in_child(outlive) == "(True, 0)"


def _run(front, work):
    """What a coroutine returns, run in a forked child."""
    if front is ASYNCIO:
        return asyncio.run(work)
    found = []

    async def note():
        found.append(await work)

    front.run(note())
    return found[0]


def losing(front, server, name, on_lost, **options):
    """A lock whose loss is noticed soon."""
    return front.package.RedisLock(
        name, client=front.client(server), expire=0.6, on_lost=on_lost, **options
    )


async def test_on_lost_is_called_once_with_the_lease_and_the_reason(front, server, direct, name):
    told = []
    lock = losing(front, server, name, lambda *client_state: told.append(client_state))

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
            await until(front, lambda: lease.lost)
    await front.sleep(0.7)

    assert told == [(lease, "its key is gone")]


async def test_on_lost_is_called_for_a_loss_that_the_release_finds(front, server, direct, name):
    told = []
    lock = losing(front, server, name, lambda *client_state: told.append(client_state))

    with pytest.raises(LockLostError):
        async with front.held(lock) as lease:
            direct.delete(lease.key)
    await until(front, lambda: told)
    await front.sleep(0.7)

    assert told == [(lease, "its key is gone")]


async def test_on_lost_is_not_called_where_nothing_is_lost(front, server, name):
    told = []

    async with front.held(
        losing(front, server, name, lambda *client_state: told.append(client_state))
    ):
        await front.sleep(0.8)
    await front.sleep(0.7)

    assert told == []


async def test_a_slow_on_lost_delays_no_renewal(front, server, direct, name):
    may_end, began, threads = threading.Event(), [], []

    def slow(lease, why):
        threads.append(threading.current_thread().name)
        began.append(lease)
        may_end.wait(20)

    async def slow_task(lease, why):
        began.append(lease)
        while not may_end.is_set():
            await asyncio.sleep(0.01)

    on_lost = slow if front is BLOCKING else slow_task
    lost = await do(losing(front, server, f"{name}:lost", on_lost).acquire())
    kept = await do(losing(front, server, f"{name}:kept", None).acquire())
    direct.delete(lost.key)
    await until(front, lambda: began)

    seen = kept.deadline
    await until(front, lambda: time.monotonic() > seen + 0.5)
    still = not kept.lost
    may_end.set()
    await do(kept.release())

    assert still
    assert "redis_lock_decorators" not in threads


async def test_a_failing_on_lost_is_logged_and_harms_nobody(front, server, direct, name, caplog):
    def failing(lease, why):
        raise ValueError("on_lost is broken")

    lost = await do(losing(front, server, f"{name}:lost", failing).acquire())
    kept = await do(losing(front, server, f"{name}:kept", None).acquire())
    direct.delete(lost.key)
    await until(front, lambda: "on_lost is broken" in caplog.text)

    seen = kept.deadline
    await until(front, lambda: time.monotonic() > seen + 0.5)

    await do(kept.release())
    assert any(record.levelname == "ERROR" for record in caplog.records)
    caplog.clear()  # a trace refers to the client, whose connections would be left


@asyncio_only
def test_a_failing_async_on_lost_is_logged_as_an_error(server, direct, name, caplog):
    async def failing(lease, why):
        await asyncio.sleep(0)
        raise ValueError("on_lost is broken")

    async def test():
        caplog.set_level("INFO", "redis_lock_decorators")
        lost = await losing(ASYNCIO, server, name, failing).acquire()
        direct.delete(lost.key)
        await until(ASYNCIO, lambda: "on_lost is broken" in caplog.text)

    ASYNCIO.run(test())

    record = next(one for one in caplog.records if "on_lost is broken" in caplog.text)
    assert record.levelname == "ERROR"


@asyncio_only
class TestCancellation:
    """What a loss does to the task that holds the lock, and what it leaves to others."""

    @pytest.fixture
    def lock_of(self, server):
        """Makes a lock whose loss is noticed soon; on the event loop of the test."""
        return lambda name, on_lost=None, **options: losing(
            ASYNCIO, server, name, on_lost, **options
        )

    @staticmethod
    def cancellations():
        """How often the running task is being cancelled (not counted before Python 3.11)."""
        task = asyncio.current_task()
        return task.cancelling() if hasattr(task, "cancelling") else 0

    def test_a_loss_cancels_the_holder_and_becomes_the_loss_at_the_edge(
        self, lock_of, direct, name
    ):
        async def test():
            with pytest.raises(LockLostError):
                async with lock_of(name) as lease:
                    direct.delete(lease.key)
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        cut.append(lease.lost)
                        raise

            assert cut == [True]
            assert self.cancellations() == 0
            await asyncio.sleep(0.01)  # it can be awaited again

        cut = []
        ASYNCIO.run(test())

    @pytest.mark.parametrize("way", ["task", "gather", "shield", "wait_for", "raise"])
    def test_a_loss_that_passes_through_an_awaited_work_is_known(self, lock_of, direct, name, way):
        async def work():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise asyncio.CancelledError from None

        ways = {
            "task": lambda: asyncio.ensure_future(asyncio.sleep(60)),
            "gather": lambda: asyncio.gather(asyncio.sleep(60), asyncio.sleep(60)),
            "shield": lambda: asyncio.shield(asyncio.sleep(1)),
            "wait_for": lambda: asyncio.wait_for(asyncio.sleep(60), 60),
            "raise": work,
        }

        async def test():
            with pytest.raises(LockLostError):
                async with lock_of(name) as lease:
                    direct.delete(lease.key)
                    await ways[way]()

            assert self.cancellations() == 0

        ASYNCIO.run(test())

    def test_a_body_that_ends_in_spite_of_it_is_told_all_the_same(self, lock_of, direct, name):
        async def test():
            with pytest.raises(LockLostError):
                async with lock_of(name) as lease:
                    direct.delete(lease.key)
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(60)

            assert self.cancellations() == 0

        ASYNCIO.run(test())

    def test_an_error_of_the_body_is_not_replaced(self, lock_of, direct, name):
        async def test():
            with pytest.raises(KeyError):
                async with lock_of(name) as lease:
                    direct.delete(lease.key)
                    try:
                        await asyncio.sleep(60)
                    finally:
                        raise KeyError("of the body")

            assert self.cancellations() == 0

        ASYNCIO.run(test())

    def test_cancel_on_lost_off_leaves_the_work_alone(self, lock_of, direct, name):
        async def test():
            with pytest.raises(LockLostError):
                async with lock_of(name, cancel_on_lost=False) as lease:
                    direct.delete(lease.key)
                    await until(ASYNCIO, lambda: lease.lost)
                    await asyncio.sleep(0.3)
                    done.append(True)

            assert self.cancellations() == 0

        done = []
        ASYNCIO.run(test())
        assert done

    def test_a_task_that_left_the_block_is_not_cancelled(self, lock_of, direct, name):
        async def test():
            lock = lock_of(name)
            lease = await lock.acquire()  # never entered: nobody is inside
            direct.delete(lease.key)
            await until(ASYNCIO, lambda: lease.lost)
            await asyncio.sleep(0.2)

            assert self.cancellations() == 0
            with pytest.raises(LockLostError):
                await lease.release()

        ASYNCIO.run(test())

    def test_a_foreign_cancellation_frees_the_lock_and_passes(self, lock_of, direct, name):
        async def work():
            async with lock_of(name):
                inside.set()
                await asyncio.sleep(60)

        async def test():
            task = asyncio.ensure_future(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert not direct.exists(f"sys:lock:{name}")

        inside = asyncio.Event()
        ASYNCIO.run(test())

    @counts_cancellations
    @pytest.mark.parametrize("first", ["loss", "other"])
    def test_a_foreign_cancellation_passes_though_the_lease_is_lost_too(
        self, lock_of, direct, name, first
    ):
        async def work():
            task = asyncio.current_task()
            on_lost = (lambda *_: task.cancel()) if first == "loss" else None
            async with lock_of(name, on_lost) as lease:
                direct.delete(lease.key)
                if first == "other":
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.sleep(60)
                await asyncio.sleep(60)

        async def test():
            task = asyncio.ensure_future(work())
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelling() == 1

        ASYNCIO.run(test())

    @counts_cancellations
    @pytest.mark.parametrize("lost_too", [False, True])
    def test_a_time_out_round_the_block_stays_a_time_out(self, lock_of, direct, name, lost_too):
        async def test():
            loop = asyncio.get_running_loop()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60) as limit:
                    on_lost = (lambda *_: expire(limit)) if lost_too else None
                    async with lock_of(name, on_lost) as lease:
                        if lost_too:
                            direct.delete(lease.key)
                        else:
                            limit.reschedule(loop.time() + 0.1)
                        await asyncio.sleep(60)

            assert self.cancellations() == 0
            assert not direct.exists(f"sys:lock:{name}")

        def expire(limit):
            limit.reschedule(asyncio.get_running_loop().time() - 1)
            limit._on_timeout()  # at this very moment, before the task runs again

        ASYNCIO.run(test())

    @counts_cancellations
    def test_a_loss_within_a_time_out_is_no_time_out(self, lock_of, direct, name):
        async def test():
            with pytest.raises(LockLostError):
                async with asyncio.timeout(60), lock_of(name) as lease:
                    direct.delete(lease.key)
                    await asyncio.sleep(60)

            assert self.cancellations() == 0

        ASYNCIO.run(test())

    @counts_cancellations
    def test_a_task_group_ends_its_holder_and_hears_only_of_the_failure(
        self, lock_of, direct, name
    ):
        async def hold():
            async with lock_of(name):
                inside.set()
                await asyncio.sleep(60)

        async def fail():
            await inside.wait()
            raise KeyError("another's")

        async def test():
            with pytest.raises(BaseException, match="unhandled") as caught:
                async with asyncio.TaskGroup() as group:
                    holder = group.create_task(hold())
                    group.create_task(fail())

            assert [type(error) for error in caught.value.exceptions] == [KeyError]
            assert holder.cancelled()
            assert not direct.exists(f"sys:lock:{name}")

        inside = asyncio.Event()
        ASYNCIO.run(test())

    @counts_cancellations
    def test_a_loss_within_a_task_group_ends_the_group(self, lock_of, direct, name):
        async def hold():
            async with lock_of(name) as lease:
                direct.delete(lease.key)
                await asyncio.sleep(60)

        async def test():
            with pytest.raises(BaseException, match="unhandled") as caught:
                async with asyncio.TaskGroup() as group:
                    holder = group.create_task(hold())
                    sibling = group.create_task(asyncio.sleep(60))

            assert [type(error) for error in caught.value.exceptions] == [LockLostError]
            assert sibling.cancelled()
            assert holder.cancelling() == 0

        ASYNCIO.run(test())

    def test_the_loss_of_the_inner_lock_leaves_the_outer_held(self, lock_of, direct, name):
        async def test():
            async with lock_of(f"{name}:outer") as outer:
                with pytest.raises(LockLostError, match="inner"):
                    async with lock_of(f"{name}:inner") as inner:
                        direct.delete(inner.key)
                        await asyncio.sleep(60)
                assert self.cancellations() == 0
                await asyncio.sleep(0.7)
                assert await outer.owned()

        ASYNCIO.run(test())

    def test_the_loss_of_the_outer_lock_ends_the_inner_block_too(self, lock_of, direct, name):
        async def test():
            with pytest.raises(LockLostError, match="outer"):
                async with lock_of(f"{name}:outer") as outer, lock_of(f"{name}:inner"):
                    direct.delete(outer.key)
                    await asyncio.sleep(60)

            assert not direct.exists(f"sys:lock:{name}:inner")
            assert self.cancellations() == 0

        ASYNCIO.run(test())

    def test_the_loss_of_both_is_a_loss_and_no_cancellation(self, lock_of, direct, name):
        async def test():
            with pytest.raises(LockLostError):
                async with lock_of(f"{name}:outer") as outer, lock_of(f"{name}:inner") as inner:
                    direct.delete(outer.key, inner.key)
                    await asyncio.sleep(60)

            assert self.cancellations() == 0
            await asyncio.sleep(0.01)

        ASYNCIO.run(test())

    def test_an_async_generator_that_loses_its_lease_in_a_step_tells_its_consumer(
        self, server, direct, name
    ):
        from redis.asyncio import Redis

        from redis_lock_decorators import redis_lock

        async def test():
            client = Redis(port=server.port)

            @redis_lock(name, client=client, expire=0.6)
            async def steps():
                yield 1
                direct.delete(f"sys:lock:{name}")
                await asyncio.sleep(60)
                yield 2

            with pytest.raises(LockLostError):
                async for step in steps():
                    seen.append(step)

            assert self.cancellations() == 0
            await client.aclose()

        seen = []
        ASYNCIO.run(test())
        assert seen == [1]

    def test_a_loss_between_the_steps_of_a_generator_cancels_no_consumer(
        self, server, direct, name
    ):
        from redis.asyncio import Redis

        from redis_lock_decorators import redis_lock

        async def test():
            client = Redis(port=server.port)

            @redis_lock(name, client=client, expire=0.6, on_lost=lambda *_: told.append(True))
            async def steps():
                yield 1

            with pytest.raises(LockLostError):
                async for _ in steps():
                    direct.delete(f"sys:lock:{name}")
                    await until(ASYNCIO, lambda: told)
                    await asyncio.sleep(0.1)

            assert self.cancellations() == 0
            await client.aclose()

        told = []
        ASYNCIO.run(test())

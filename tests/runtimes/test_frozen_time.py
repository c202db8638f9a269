"""While a test freezes time, leases use real time, as Redis does."""

from __future__ import annotations

import ast
import asyncio
import os
import pathlib
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
from support.fronts import LEGACY

import redis_lock_decorators
from redis_lock_decorators import LockLostError, RedisLock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.lock import Lock

freezegun = pytest.importorskip("freezegun", reason="freezegun is in the extra test")
time_machine = pytest.importorskip("time_machine", reason="time-machine is in the extra test")

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")

THEN = "2024-01-01"
PACKAGE = pathlib.Path(redis_lock_decorators.__file__).parent
#: Ways to freeze time; with a tick it continues from another time.
FREEZERS = {
    "freezegun": lambda: freezegun.freeze_time(THEN),
    "freezegun with a tick": lambda: freezegun.freeze_time(THEN, tick=True),
    "freezegun in steps": lambda: freezegun.freeze_time(THEN, auto_tick_seconds=60),
    "freezegun with real asyncio": lambda: freezegun.freeze_time(THEN, real_asyncio=True),
    "time-machine": lambda: time_machine.travel(THEN, tick=False),
    "time-machine with a tick": lambda: time_machine.travel(THEN, tick=True),
}
STEPS = "freezegun in steps"
#: Timers of event loops never fire.
TIMELESS = "freezegun"


def kinds(*left_out: str, slow: tuple[str, ...]) -> Any:
    """A fixture of the ways to freeze time, without those left out."""

    def freezer(request: pytest.FixtureRequest) -> AbstractContextManager[Any]:
        return FREEZERS[request.param]()  # type: ignore[no-any-return]

    rare = {kind: [pytest.mark.slow] * (kind in slow) for kind in FREEZERS if kind not in left_out}
    return pytest.fixture(params=[pytest.param(kind, marks=marks) for kind, marks in rare.items()])(
        freezer
    )


frozen = kinds(
    slow=("freezegun with a tick", "freezegun with real asyncio", "time-machine with a tick")
)
# With steps, redis-py's connect timeouts expire immediately.
frozen_on_loops = kinds(STEPS, slow=("time-machine with a tick",))
frozen_but_timed = kinds(STEPS, TIMELESS, slow=())


def run(main: Any) -> Any:
    """Like ``asyncio.run``, with a timeout that does not depend on a frozen clock."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(main)), daemon=True)
    thread.start()
    thread.join(30)
    assert results, "the coroutine hangs or failed"
    return results[0]


def test_lock_is_held_and_renewed_while_time_is_frozen(server, direct, name, frozen):
    with frozen, RedisLock(name, client=direct, expire=0.9) as lease:
        lease.check()
        assert (lease.lost, lease.owned()) == (False, True)
        assert 0 < lease.remaining() < 1

        time.sleep(1.2)

        lease.check()
        assert lease.owned()
    lease.release()


def test_lock_acquired_before_is_held_while_time_is_frozen(server, direct, name, frozen):
    with RedisLock(name, client=direct, expire=0.9) as lease:
        with frozen:
            time.sleep(1.2)
            lease.check()
        time.sleep(1.2)
        assert lease.owned()


def test_real_seconds_end_a_lease_while_time_is_frozen(server, direct, name, frozen):
    losses: list[str] = []
    with frozen:
        lock = RedisLock(
            name,
            client=direct,
            expire=0.3,
            auto_renew=False,
            on_lost=lambda _, why: losses.append(why),
        )
        lease = lock.acquire()
        time.sleep(0.5)

        assert lease.lost
        assert lease.remaining() == 0
        with pytest.raises(LockLostError):
            lease.check()
        end = time.process_time() + 20
        while not losses and time.process_time() < end:
            time.sleep(0.01)
    assert len(losses) == 1


def test_thread_waits_real_seconds_while_time_is_frozen(server, direct, name, frozen):
    with frozen, RedisLock(name, client=direct) as lease:
        assert RedisLock(name, client=server.client(), acquire_time=0.3).acquire() is None

        threading.Timer(0.3, lease.release).start()
        later = RedisLock(name, client=server.client(), acquire_time=20).acquire()
        assert later.owned()
        later.release()


def test_drop_in_is_held_while_time_is_frozen(server, direct, name, frozen):
    with frozen, direct.lock(name, timeout=0.9, lock_class=Lock) as lock:
        assert lock.owned()
        lock.extend(5)
        time.sleep(1)
        lock.reacquire()


def test_task_holds_a_lock_while_time_is_frozen(server, name, frozen_on_loops):
    from redis.asyncio import Redis

    async def main() -> tuple[bool, bool]:
        async with Redis(port=server.port) as client:
            with frozen_on_loops:
                async with AsyncRedisLock(name, client=client, expire=5) as lease:
                    lease.check()
                    await lease.extend()
                    return lease.lost, await lease.owned()

    assert run(main()) == (False, True)


def test_tasks_wait_and_renew_while_time_is_frozen(server, name, frozen_but_timed):
    from redis.asyncio import Redis

    async def main() -> list[Any]:
        async with Redis(port=server.port) as client, Redis(port=server.port) as other:
            with frozen_but_timed:
                found: list[Any] = []
                async with AsyncRedisLock(name, client=client, expire=0.9) as lease:
                    found += [await AsyncRedisLock(name, client=other).acquire(0.3)]
                    waiting = asyncio.create_task(AsyncRedisLock(name, client=other).acquire(20))
                    await asyncio.sleep(1.2)
                    found += [lease.lost, await lease.owned()]
                later = await waiting
                found += [await later.owned()]
                await later.release()
                return found

    assert run(main()) == [None, False, True, True]


def test_renewal_recovers_from_a_timer_set_on_a_frozen_clock(server, name):
    from redis.asyncio import Redis

    async def main() -> bool:
        async with Redis(port=server.port) as client:
            with freezegun.freeze_time(THEN):
                async with AsyncRedisLock(name, client=client, expire=0.9):
                    pass
            await asyncio.sleep(0.5)  # the timer of that lease would fire in 50 years
            async with AsyncRedisLock(name, client=client, expire=0.9) as lease:
                await asyncio.sleep(1.2)
                return lease.lost

    assert run(main()) is False


@pytest.mark.parametrize("library", ["freezegun", "time_machine"])
def test_import_works_while_time_is_frozen(server, name, library):
    code = f"""
import time, redis, freezegun, time_machine
real = [time.monotonic]
frozen = {FROZEN[library]}
with frozen:
    from redis_lock_decorators import RedisLock
    def observed(lock):
        with lock as lease:
            time.sleep(1.2)
            return lease.lost, lease.owned(), abs(lease.deadline - real[0]()) < 2
    lock = RedisLock({name!r}, client=redis.Redis(port={server.port}), expire=0.9)
    print(observed(lock))
print(observed(lock))
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split("\n")[:-1] == ["(False, True, True)"] * 2, done.stderr


FROZEN = {
    "freezegun": f"freezegun.freeze_time({THEN!r})",
    "time_machine": f"time_machine.travel({THEN!r}, tick=False)",
}


#: What holds no lock while it runs in a program: its tests and the command line.
OWN_TIME = ("testing", "cli", "diagnosis.py", "_diagnosis")


def test_package_reads_a_single_clock():
    """Code that read another clock would mix real and frozen time."""
    clocks = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
    read = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in OWN_TIME
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in clocks
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]

    assert read == []

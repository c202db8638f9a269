"""A process whose threads or tasks acquire locks in a loop and record what happened.

``python -m support.lockers KIND NAME PLAN FOLDER``: KIND is "threads" or "tasks", or "redis-py" for
threads with redis-py's own lock. It ends after the file "stop" appears in FOLDER, when each of them
has acquired every lock once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import pathlib
import random
import signal
import sys
import threading
import time
from typing import Any

import redis
import redis.asyncio

import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.lock
from redis_lock_decorators import LockLostError, LockTimeoutError
from support.connecting import connect
from support.fronts import FRONTS, do
from support.history import Diary
from support.plans import LONG, LONGEST_BLOCK, LockerPlan

#: Errors of the server or the connection after which the outcome is unknown.
BROKEN = (redis.ConnectionError, redis.TimeoutError)


class Bare:
    """A lock of redis-py's kind, which reports no loss, with the interface of a lease."""

    lost, fence = False, None

    def __init__(self, lock: Any, deadline: float | None) -> None:
        self.deadline = deadline
        self.identifier = lock.local.token.decode()
        self.release = lock.release


class Lockers:
    """The threads or tasks of one process."""

    def __init__(self, kind: str, name: str, plan: LockerPlan, folder: pathlib.Path) -> None:
        self.kind, self.plan = kind, plan
        self.front = FRONTS[kind == "tasks"]
        self.diary = Diary(folder, name)
        self.random = random.Random(name)
        self.stop = folder / "stop"
        self._is_ending = False

    def run(self) -> None:
        if self.kind == "tasks":
            asyncio.run(self._tasks())
        else:
            self._threads()

    def _threads(self) -> None:
        client = connect(self.plan.connection, "blocking")
        at_once = threading.Barrier(max(1, self.plan.later))

        def work(place: int) -> None:
            if place < self.plan.later:
                _wait_for(self.stop.with_name("more"))
                at_once.wait()
            self.front.run(self._repeat(client))

        places = range(self.plan.threads)
        threads = [threading.Thread(target=work, args=(place,)) for place in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _tasks(self) -> None:
        client = connect(self.plan.connection, "asyncio")
        await asyncio.gather(*[self._repeat(client) for _ in range(self.plan.tasks)])
        await client.aclose()

    async def _repeat(self, client: Any) -> None:
        while not self.stop.exists():
            name, patience = self.random.choice([*self.plan.locks]), self._patience()
            if self.kind == "tasks" and self.random.random() < self.plan.cancelled:
                await self._cut_short(self._attempt(client, name, patience))
            else:
                await self._attempt(client, name, patience)
            if self.plan.rest:
                await self.front.sleep(self.random.uniform(0, self.plan.rest))
        self._is_ending = True
        for name in self.plan.locks:
            await self._attempt(client, name, LONG)

    def _patience(self) -> float:
        return self.random.choice(self.plan.patiences)

    async def _cut_short(self, work: Any) -> None:
        attempt = asyncio.ensure_future(work)
        await asyncio.wait([attempt], timeout=self.random.expovariate(20))
        attempt.cancel()
        await asyncio.wait([attempt])

    async def _attempt(self, client: Any, name: str, patience: float) -> None:
        strategy = self.random.choice(self.plan.locks[name])
        number = self.diary.begin(lock=name, strategy=strategy, patience=patience)
        try:
            if self.kind == "redis-py" or strategy == "drop-in":
                is_done = await self._bare(number, client, name, strategy, patience)
            else:
                hold = self.random.choice([self._block, self._lease])
                is_done = await hold(number, self._lock(number, client, name, strategy, patience))
            self.diary.end(number, "ok" if is_done else "refused")
        except BaseException as error:
            self.diary.end(number, outcome_of(error), f"{type(error).__name__}: {error}")
            if not isinstance(error, (redis.exceptions.LockError, asyncio.CancelledError)):
                await self.front.sleep(0.02)

    def _lock(self, number: int, client: Any, name: str, strategy: str, patience: float) -> Any:
        return self.front.package.RedisLock(
            name,
            client=client,
            wait=strategy,
            acquire_time=patience,
            expire=self.plan.lease,
            fencing="fenced" in name,
            on_lost=lambda _, why: self.diary.notified(number, why),
        )

    async def _lease(self, number: int, lock: Any) -> bool:
        """Acquire and release a lease."""
        lease = await do(lock.acquire())
        if lease is None:
            return False
        try:
            await self._hold_for_a_while(number, lease)
        except asyncio.CancelledError:
            await lease.release()
            raise
        await do(lease.release())
        return True

    async def _block(self, number: int, lock: Any) -> bool:
        """Hold the lock around a block."""
        try:
            async with self.front.held(lock) as lease:
                await self._hold_for_a_while(number, lease)
        except LockTimeoutError:
            return False
        return True

    async def _bare(
        self, number: int, client: Any, name: str, strategy: str, patience: float
    ) -> bool:
        lock = self._bare_lock(client, name, strategy)
        wait = {"blocking": patience > 0, "blocking_timeout": patience or None}
        if not await do(lock.acquire(**wait)):
            return False
        # Its user knows no deadline. The drop-in's work has ended by then, unless it was paused.
        deadline = time.monotonic() + self.plan.lease / 2 if strategy == "drop-in" else None
        lease = Bare(lock, deadline)
        try:
            await self._hold_for_a_while(number, lease)
        except asyncio.CancelledError:
            await lease.release()
            raise
        await do(lease.release())
        return True

    def _bare_lock(self, client: Any, name: str, strategy: str) -> Any:
        options = {"timeout": self.plan.lease, "sleep": 0.01, "thread_local": False}
        if strategy != "drop-in":
            return client.lock(name, **options)
        kinds = redis_lock_decorators.lock, redis_lock_decorators.asyncio.lock
        return kinds[self.kind == "tasks"].Lock(client, f"sys:lock:{name}", **options)

    async def _hold_for_a_while(self, number: int, lease: Any) -> None:
        """Hold the lock: not at all, for a moment, or sometimes for longer than a lease."""
        self.diary.granted(number, lease)
        try:
            for pause in self._pauses(isinstance(lease, Bare)):
                await self.front.sleep(pause)
                if lease.lost:
                    break
        finally:
            self.diary.releasing(number, lease)

    def _pauses(self, is_bare: bool) -> list[float]:
        if self._is_ending:
            return []
        chance = self.random.random()
        # Locks without renewal are held for less than a lease.
        long, share = (0.4, 0.1) if is_bare else (LONGEST_BLOCK, self.plan.long)
        if chance < share:
            return [0.05] * int(20 * long * self.plan.lease)
        if chance < self.plan.short:
            return [self.plan.moment * self.random.random()]
        return []


def _wait_for(path: pathlib.Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def outcome_of(error: BaseException) -> str:
    """The outcome of an attempt that raised."""
    if isinstance(error, redis.exceptions.LockError):
        is_loss = isinstance(error, (LockLostError, redis.exceptions.LockNotOwnedError))
        return "lost" if is_loss else "wrong"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, BROKEN):
        return "unknown"
    return "error" if isinstance(error, redis.RedisError) else "wrong"


def main(kind: str, name: str, plan: str, folder: str) -> None:
    with contextlib.suppress(AttributeError):
        faulthandler.register(signal.SIGUSR1)
    Lockers(kind, name, LockerPlan.load(pathlib.Path(plan)), pathlib.Path(folder)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program that uses locks in all common ways: ``python everyday.py PORT PREFIX``.

It checks its results without ``assert``, which ``python -O`` removes, and prints "all done".
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import redis
import redis.asyncio

import redis_lock_decorators as blocking
from redis_lock_decorators import asyncio as tasks
from redis_lock_decorators.asyncio.lock import Lock as AsyncDropIn
from redis_lock_decorators.lock import Lock as DropIn


def expect(found: object, wanted: object) -> None:
    """Fail unless the values are equal."""
    if found != wanted:
        raise SystemExit(f"{found!r} instead of {wanted!r}")


def in_threads(port: int, prefix: str) -> None:
    """Hold, wait, renew, lose, and release."""
    with redis.Redis(port=port) as client, redis.Redis(port=port) as other:
        with blocking.RedisLock(f"{prefix}:renewed", client=client, expire=0.9) as lease:
            waiting = blocking.RedisLock(f"{prefix}:renewed", client=other, acquire_time=20)
            entered: list[bool] = []

            def wait() -> None:
                with waiting as second:
                    entered.append(second.owned())

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(1.2)
            expect((lease.lost, lease.owned(), entered), (False, True, []))
        thread.join()
        expect(entered, [True])

        losses: list[str] = []
        lost = blocking.RedisLock(
            f"{prefix}:lost", client=client, expire=0.6, on_lost=lambda _, why: losses.append(why)
        )
        try:
            with lost as lease:
                client.delete(lease.key)
                time.sleep(0.8)
        except blocking.LockLostError:
            losses.append("raised")
        expect(len(losses), 2)

        identifier = blocking.acquire_lock(client, f"{prefix}:function")
        expect(blocking.release_lock(client, f"{prefix}:function", identifier), True)
        with client.lock(f"{prefix}:drop-in", timeout=5, lock_class=DropIn) as lock:
            expect(lock.owned(), True)
        expect(decorated(client, prefix)("x"), f"{prefix}:x")


def decorated(client: object, prefix: str) -> object:
    """A decorated function."""

    @blocking.redis_lock(prefix + ":{item}", client=client)
    def work(item: str) -> str:
        lease = blocking.current_lease()
        return lease.lock_name if lease is not None else "none"

    return work


async def in_tasks(port: int, prefix: str) -> None:
    """The same on an event loop."""
    open_client = redis.asyncio.Redis
    async with open_client(port=port) as client, open_client(port=port) as other:
        async with tasks.RedisLock(f"{prefix}:renewed", client=client, expire=0.9) as lease:
            waiting = tasks.RedisLock(f"{prefix}:renewed", client=other, acquire_time=20)
            waiter = asyncio.create_task(waiting.acquire())
            await asyncio.sleep(1.2)
            expect((lease.lost, await lease.owned(), waiter.done()), (False, True, False))
        await (await waiter).release()

        losses: list[str] = []
        lost = tasks.RedisLock(
            f"{prefix}:lost", client=client, expire=0.6, on_lost=lambda _, why: losses.append(why)
        )
        try:
            async with lost as lease:
                await client.delete(lease.key)
                await asyncio.sleep(5)
        except blocking.LockLostError:
            losses.append("raised")
        expect(len(losses), 2)

        lock = client.lock(f"{prefix}:drop-in", timeout=5, lock_class=AsyncDropIn)
        async with lock:
            expect(await lock.owned(), True)


def main(port: int, prefix: str) -> None:
    """Run both: first in threads, then on an event loop."""
    print("imported from", blocking.__file__)
    in_threads(port, prefix)
    asyncio.run(in_tasks(port, prefix))
    with redis.Redis(port=port) as client:
        found = client.keys(f"*{prefix}:*")
        expect([key for key in found if not key.endswith(b"~:released")], [])
    print("all done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

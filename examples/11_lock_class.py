"""A program written for redis-py's own Lock: only the lock class changes.

``client.lock(…)`` accepts ``lock_class``, for blocking and for asyncio clients. The names of the
locks, their values in Redis and the errors to catch stay the same, so processes with the
old class and with the new one exclude each other during the roll-out.

Prints, among others::

    report: held, 3 s, with a token of 33 letters
    report: the old class acquires it meanwhile: False
    report: extended to 10 s: True
    stolen: LockNotOwnedError, as with redis-py...
    asyncio: 4 tasks shared one lock, each with its own token: True
    asyncio: owned by a task that failed to acquire it: False
"""

import asyncio
import pathlib
import sys

import redis
import redis.asyncio

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators.asyncio.lock import Lock as AsyncLock
from redis_lock_decorators.lock import Lock


def report(client):
    with client.lock("report", timeout=3, lock_class=Lock) as lock:
        seconds, letters = round(client.pttl("report") / 1000), len(lock.local.token)
        print(f"report: held, {seconds} s, with a token of {letters} letters")
        old = client.lock("report", timeout=3)
        print("report: the old class acquires it meanwhile:", old.acquire(blocking=False))
        print("report: extended to 10 s:", lock.extend(10, replace_ttl=True))


def stolen(client):
    lock = client.lock("stolen", timeout=3, lock_class=Lock)
    lock.acquire()
    client.set("stolen", "another holder", px=100)
    try:
        lock.release()
    except redis.exceptions.LockNotOwnedError as error:
        print(f"stolen: LockNotOwnedError, as with redis-py ({error})")


async def tasks(url):
    async with redis.asyncio.Redis.from_url(url) as client:
        lock = client.lock("tasks", timeout=3, sleep=0.01, lock_class=AsyncLock)
        tokens = await asyncio.gather(*[work(lock) for _ in range(4)])
        own = len(set(tokens)) == 4
        print("asyncio: 4 tasks shared one lock, each with its own token:", own)
        async with lock:
            owned = await asyncio.create_task(fail_to_acquire(lock))
            print("asyncio: owned by a task that failed to acquire it:", owned)


async def work(lock):
    async with lock:
        return lock.local.token


async def fail_to_acquire(lock):
    await lock.acquire(blocking=False)
    return await lock.owned()


def main():
    with server_url() as url, redis.Redis.from_url(url) as client:
        report(client)
        stolen(client)
        asyncio.run(tasks(url))


if __name__ == "__main__":
    main()

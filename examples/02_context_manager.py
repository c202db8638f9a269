"""RedisLock: a with-block, one attempt without waiting, several names, and the lease's methods.

A RedisLock only describes a lock; every acquisition of it is a Lease. If a lock is not
free in time, LockTimeoutError is raised, with the details as attributes.

Prints, among others::

    held: report, key sys:lock:report
    the key holds the lease's identifier: True
    another thread, one attempt: None
    after the block, locked: False
    both names: account:1, account:2
    timeout: lock report is held by ...
    the same thread again: LockError
"""

import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import LockError, LockTimeoutError, RedisLock, configure


def show_lease(lock, pool):
    with lock as lease:
        print(f"held: {lease.lock_name}, key {lease.key}")
        print("the key holds the lease's identifier:", lock.owner() == lease.identifier)
        print("another thread, one attempt:", pool.submit(lock.acquire, blocking=False).result())
        print(f"remaining: {lease.remaining():.2f} s of {lease.expire} s")
        lease.extend(60)  # before a long step: 60 s from now
        print(f"remaining after extend(60): {lease.remaining():.2f} s")
        lease.check()  # raises LockLostError if the lease has ended
    print("after the block, locked:", lock.locked())


def use(lock):
    with lock:
        return "used"


def show_timeout(lock, pool):
    lease = lock.acquire()  # None if the lock is busy; the caller must call release()
    try:
        print(pool.submit(use, lock).result())
    except LockTimeoutError as error:
        print(f"timeout: lock {error.lock_name} is held by {error.holder}")
        print(f"waited {error.waited:.2f} s, free in at most {error.free_in:.2f} s")
        print("as text:", error)
    finally:
        lease.release()


def main():
    with server_url() as url, ThreadPoolExecutor(1) as pool:
        configure(get_redis_connection=lambda: redis.Redis.from_url(url), expire=5)
        lock = RedisLock("report", acquire_time=0.3)
        show_lease(lock, pool)
        show_timeout(lock, pool)
        with RedisLock(["account:2", "account:1"]) as lease:
            print("both names:", lease.lock_name)
        try:
            with lock, lock:
                print("never printed: it would wait for itself")
        except LockError as error:
            print("the same thread again:", type(error).__name__)


if __name__ == "__main__":
    main()

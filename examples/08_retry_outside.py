"""A retry decorator belongs OUTSIDE the lock, and should repeat only what is safe to repeat.

LockTimeoutError: the function was not called, so a retry is always safe.
LockLostError: it did run, perhaps concurrently with another holder: retry only if it is idempotent.
A ConnectionError may come from the lock or from the function itself: the same rule.

Prints, among others::

    attempt 1: busy
    import_prices ran once
    slow_report: LockLostError, not repeated
    slow_report ran once
"""

import collections
import functools
import pathlib
import sys
import time

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import (
    LockLostError,
    LockTimeoutError,
    acquire_lock,
    configure,
    redis_lock,
)

runs = collections.Counter()


def retried(attempts, pause):
    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            for number in range(1, attempts):
                try:
                    return function(*args, **kwargs)
                except LockTimeoutError:  # nothing else: the function has not run
                    print(f"attempt {number}: busy")
                    time.sleep(pause)
            return function(*args, **kwargs)

        return call

    return decorate


@retried(attempts=4, pause=0.5)
@redis_lock("prices", acquire_time=0.1)  # a short wait inside, a long one outside
def import_prices():
    runs["import_prices"] += 1


@retried(attempts=4, pause=0.1)
@redis_lock("report", expire=0.2, auto_renew=False)
def slow_report():
    runs["slow_report"] += 1
    time.sleep(0.4)  # longer than the lease, which is not renewed


def main():
    with server_url() as url, redis.Redis.from_url(url) as another_process:
        configure(get_redis_connection=lambda: redis.Redis.from_url(url))
        acquire_lock(another_process, "prices", expire=0.9)  # it expires
        import_prices()
        print("import_prices ran once" if runs["import_prices"] == 1 else "ran again")
        try:
            slow_report()
        except LockLostError as error:
            print("slow_report: LockLostError, not repeated")
            print("as text:", error)
        print("slow_report ran once" if runs["slow_report"] == 1 else "ran again")


if __name__ == "__main__":
    main()

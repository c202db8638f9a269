"""The plain functions: acquire_lock returns an identifier for release_lock and extend_lock.

The identifier is the only state, and it may be passed to another process. release_lock has three
methods: WATCH/MULTI/EXEC (the default on one server), a Lua script (the default on a
cluster), and one native command if the server has it.

Prints, among others::

    acquired: an identifier of 33 letters
    a second caller gets False
    extended to 30 s: True
    released with a wrong identifier: False
    released with method=None: True
    released with method='transaction': True
    released with method='script': True
    released again: True
"""

import pathlib
import sys

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import ConfigurationError, acquire_lock, extend_lock, release_lock


def show_release(conn, method):
    identifier = acquire_lock(conn, "nightly", expire=5)
    try:
        released = release_lock(conn, "nightly", identifier, method=method)
        print(f"released with {method=}: {released}")
    except ConfigurationError as error:  # "native" needs Valkey 9.0 or Redis 8.4
        print(f"not released with {method=}: {error}")
        release_lock(conn, "nightly", identifier)


def main():
    with server_url() as url, redis.Redis.from_url(url) as conn:
        identifier = acquire_lock(conn, "nightly", acquire_time=1, expire=5)
        print(f"acquired: an identifier of {len(identifier)} letters")
        print("a second caller gets", acquire_lock(conn, "nightly", acquire_time=0.05))
        print("extended to 30 s:", extend_lock(conn, "nightly", identifier, 30))
        print("released with a wrong identifier:", release_lock(conn, "nightly", "not mine"))
        release_lock(conn, "nightly", identifier)
        for method in (None, "transaction", "script", "native"):
            show_release(conn, method)
        # A lock that no longer exists counts as released: calling it twice is safe.
        print("released again:", release_lock(conn, "nightly", identifier))


if __name__ == "__main__":
    main()

"""The drop-in classes for threads, and how to create a lock of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators.compat import pottery, python_redis_lock
from redis_lock_decorators.lock import Lock

#: The Redis key, the class, and how to create a lock of it.
Kind = tuple[str, type[Any], Callable[..., Any]]


def redispy(kind: type[Lock], conn: Any, expire: float = 30) -> Any:
    return kind(conn, "report", timeout=expire)


def redispy_shared(kind: type[Lock], conn: Any, expire: float = 30) -> Any:
    return kind(conn, "report", timeout=expire, thread_local=False)


def python_redis(kind: type[python_redis_lock.Lock], conn: Any, expire: float = 30) -> Any:
    return kind(conn, "report", expire=expire)


def redlock(kind: type[pottery.Redlock], conn: Any, expire: float = 30) -> Any:
    return kind(key="report", masters={conn}, auto_release_time=expire)


KINDS: dict[str, Kind] = {
    "redis-py": ("report", Lock, redispy),
    "redis-py-shared": ("report", Lock, redispy_shared),
    "python-redis-lock": ("lock:report", python_redis_lock.Lock, python_redis),
    "pottery": ("redlock:report", pottery.Redlock, redlock),
}
#: What a release raises if the lock is not held.
LOST = (python_redis_lock.NotAcquired, pottery.ReleaseUnlockedLock, redis.exceptions.LockError)


def counting(base: type[Any], error: BaseException | None = None) -> type[Any]:
    """A reentrant subclass, whose inner releases may fail."""

    class Own(base):  # type: ignore[misc]
        count = 0

        def acquire(self, *arguments: Any, **options: Any) -> Any:
            is_acquired = self.count > 0 or super().acquire(*arguments, **options)
            self.count += 1
            return is_acquired

        def release(self) -> None:
            self.count -= 1
            if self.count and error is not None:
                raise error
            if not self.count:
                super().release()

    return Own

"""The release of locks of any holder, and the notification of waiting processes."""

from __future__ import annotations

import logging
from typing import Any

from redis_lock_decorators import force_release
from redis_lock_decorators._rules.keys import is_unchanged
from redis_lock_decorators.inspection import find_locks

PREFIX = "lock:"
log = logging.getLogger("redis_lock_decorators")


def reset_all(redis_client: Any) -> None:
    """Release all locks of python-redis-lock and of this module, whoever holds them."""
    for page in find_locks(redis_client, prefix=PREFIX):
        for status in page:
            reset(redis_client, status.lock_name, signal_expire=1000)


def reset(client: Any, name: str, signal_expire: int) -> None:
    """Release one lock, whoever holds it."""
    if is_unchanged(name):
        force_release(name, client=client, prefix=PREFIX)
    else:  # its key is not that of a RedisLock; those that wait for it look again
        client.delete((PREFIX + name).encode(errors="surrogateescape"))
    notify(client, name, signal_expire)


def notify(client: Any, name: str, signal_expire: int) -> None:
    """Notify a process that waits by python-redis-lock itself: it blocks on this list."""
    if not signal_expire:
        return
    signal = f"lock-signal:{name}".encode(errors="surrogateescape")
    try:
        with client.pipeline() as pipeline:
            pipeline.delete(signal)
            pipeline.lpush(signal, 1)
            pipeline.pexpire(signal, signal_expire)
            pipeline.execute()
    except Exception as error:  # of any client library; the lock itself has been released
        log.warning("the waiters for lock %r were not notified (%s)", name, type(error).__name__)

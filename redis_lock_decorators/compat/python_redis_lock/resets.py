"""The release of locks of any holder, and the notification of waiting processes."""

from __future__ import annotations

import logging
from typing import Any

from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import raise_failure
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._shared.settings import DEFAULT
from redis_lock_decorators.inspection import find_locks

PREFIX = "lock:"
log = logging.getLogger("redis_lock_decorators")


def reset_all(redis_client: Any) -> None:
    """Release all locks of python-redis-lock and of this module, whoever holds them."""
    for page in find_locks(redis_client, prefix=PREFIX):
        for status in page:
            reset(DEFAULT.port(redis_client, None), status.lock_name, signal_expire=1000)


def reset(port: Port, name: str, signal_expire: int) -> None:
    """Release one lock, whoever holds it."""
    # By its key, as that is not always the key of a RedisLock with this name.
    run(force(port, (_encoded(PREFIX + name),), None, (name,)))
    notify(port, name, signal_expire)


def notify(port: Port, name: str, signal_expire: int) -> None:
    """Notify a process that waits by python-redis-lock itself: it blocks on this list."""
    if not signal_expire:
        return
    signal = _encoded(f"lock-signal:{name}")
    commands = (("DEL", signal), ("LPUSH", signal, 1), ("PEXPIRE", signal, signal_expire))
    try:
        raise_failure(run(port.send_together(*commands, until=port.now() + ROUND_TRIP)))
    except Exception as error:  # of any client library; the lock itself has been released
        log.warning("the waiters for lock %r were not notified (%s)", name, type(error).__name__)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")

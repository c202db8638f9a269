"""Use a real lock: acquire, renew, hand over, release."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redis_lock_decorators._diagnosis.finding import Finding, Severity, unchecked
from redis_lock_decorators._diagnosis.nodes import refuse_other
from redis_lock_decorators._io.client_methods import has_pipelines
from redis_lock_decorators._rules.keys import key_of, with_companions
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.inspection import waiters
from redis_lock_decorators.redislock import RedisLock

#: The lease of the throw-away lock, in seconds.
EXPIRE = 10.0
#: Seconds to wait for the throw-away lock.
PATIENCE = 5.0
#: Seconds to wait until its waiter is in the queue.
JOINING = 3.0
#: A slower hand-over, in seconds, was probably found by a waiter's own recheck (every second), not
#: by a message.
SLOW = 1.0


def used(client: Any, prefix: str, name: str) -> Iterator[Finding]:
    """Acquire, check, extend and release a lock; yield a finding if that fails."""
    try:
        lease = _lock(client, prefix, name).acquire(0)
        if lease is None:
            yield _failed("A lock that was free could not be acquired")
            return
        try:
            is_held = lease.owned() and lease.extend(EXPIRE)
        finally:
            lease.release()
        if not is_held:
            yield _failed("A lock that was acquired is not held")
    except Exception as error:
        refuse_other(error)
        yield _failed("A lock cannot be used", described(error))


def fenced(client: Any, prefix: str, name: str) -> Iterator[Finding]:
    """Acquire a lock twice; yield a finding if its fence does not grow."""
    lock = _lock(client, prefix, name, fencing=True)
    try:
        with lock as first:
            pass
        with lock as second:
            pass
    except Exception as error:
        refuse_other(error)
        yield _failed("A lock cannot be fenced", described(error))
        return
    if first.fence is None or second.fence is None or first.fence >= second.fence:
        yield _failed(f"The fence does not grow: {first.fence}, then {second.fence}")


def _failed(title: str, meaning: str = "The server or a proxy answers wrongly.") -> Finding:
    return Finding(
        Severity.FAILURE, title, meaning, "See what the server refuses, and the other findings."
    )


def handed_over(client: Any, prefix: str, name: str) -> Iterator[Finding]:
    """Have a lock handed to a waiter; yield a finding if that fails or takes long."""
    if not has_pipelines(client):
        yield unchecked("The hand-over of a lock", f"a {type(client).__name__} has no pipeline")
        return
    try:
        has_joined, seconds = _hand_over(client, prefix, name)
        if has_joined and seconds >= SLOW:  # a busy machine can be the reason, once
            has_joined, seconds = _hand_over(client, prefix, name)
    except Exception as error:
        refuse_other(error)
        yield _failed("A lock cannot be waited for", described(error))
        return
    if not has_joined:
        yield Finding(
            Severity.WAITING,
            "A waiter did not join the queue",
            "Waiters poll, and the order of arrival is lost.",
            "See the other findings, and the warnings that the program logs.",
        )
    elif seconds >= PATIENCE:
        yield Finding(
            Severity.WAITING,
            f"A waiter did not get the lock within {PATIENCE:.0f} s of its release",
            "Locks are not handed to waiters.",
            "See the other findings, and the warnings that the program logs.",
        )
    elif seconds >= SLOW:
        yield Finding(
            Severity.SLOW,
            "A hand-over takes long",
            f"A waiter got the lock {seconds:.1f} s after its release: messages are late or lost, "
            "or the network is slow.",
            "Measure the round trips (redis-lock bench), and look for a proxy in between.",
        )


def _hand_over(client: Any, prefix: str, name: str) -> tuple[bool, float]:
    """Whether a waiter joined the queue, and after how many seconds it got the lock."""
    lock, entered = _lock(client, prefix, name), []

    def wait() -> None:
        with suppress(Exception), lock:  # another finding has the reason
            entered.append(time.monotonic())

    waiter = threading.Thread(target=wait, name="redis-lock doctor", daemon=True)
    with lock:
        waiter.start()
        has_joined = _has_joined(client, prefix, name)
        released = time.monotonic()
    waiter.join(2 * PATIENCE)
    return has_joined, max(0.0, entered[0] - released) if entered else PATIENCE


def _has_joined(client: Any, prefix: str, name: str) -> bool:
    end = time.monotonic() + JOINING
    while time.monotonic() < end:
        if waiters(client, name, prefix=prefix, count=1):
            return True
        time.sleep(0.01)
    return False


def _lock(client: Any, prefix: str, name: str, fencing: bool = False) -> RedisLock:
    return RedisLock(
        name,
        client=client,
        prefix=prefix,
        expire=EXPIRE,
        acquire_time=JOINING + PATIENCE,
        fencing=fencing,
    )


def remove(client: Any, prefix: str, name: str) -> None:
    """Delete what the lock may have left; all of it expires."""
    key = key_of(prefix, name)
    with suppress(Exception):
        for one in with_companions(key):
            client.execute_command("DEL", one)

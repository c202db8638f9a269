"""Locks that are held until the transactions around them have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from django.db import connections

from redis_lock_decorators.contrib.django.connection import require_application
from redis_lock_decorators.contrib.django.hooks import HeldLock, ReleaseHook
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.lease import Lease
from redis_lock_decorators.redislock import RedisLock


@contextmanager
def until_commit(
    lock_name: str | Sequence[str], *, using: str | None = None, **options: Any
) -> Iterator[Lease]:
    """Hold a lock in the block, and until the transaction around the block has ended.

    Without a transaction the lock is released at the end of the block. Within a transaction that
    holds the same lock, of the same client, its lease is used, with its options. In ``TestCase``,
    which never commits, the lock is released at the end of the block, too.

    Args:
        lock_name: the name to lock, or several.
        using: the alias of the database; by default those of all transactions that are open.
        options: as for ``RedisLock``, durations in seconds.

    Raises:
        LockTimeoutError: the lock was not free in time.
        LockLostError: the lock was lost before the end of the block.
        ConfigurationError: ``fencing`` is wanted, and the transaction holds the lock without it.
    """
    require_application()
    lock = RedisLock(lock_name, **options)
    aliases = open_transactions(using)
    if not aliases:
        with lock as lease:
            yield lease
        return
    held = _reused(lock) or HeldLock(lock)
    if lock._config.options.fencing and held.lease.fence is None:
        why = "a transaction around this block holds the lock without fencing=True"
        raise ConfigurationError(why, held.lease.lock_name)
    for alias in aliases:
        held.join(alias)
    yield held.lease
    confirm(held.lease)


@contextmanager
def held_until_commit(lock: RedisLock, aliases: Sequence[str]) -> Iterator[Lease]:
    """Hold a lock until the open transactions of these databases have ended."""
    held = HeldLock(lock)
    for alias in aliases:
        held.join(alias)
    yield held.lease
    confirm(held.lease)


def open_transactions(using: str | None = None) -> list[str]:
    """Return the databases of this thread with an open transaction that will be committed."""
    found = [connections[using]] if using else connections.all(initialized_only=True)
    return [one.alias for one in found if one.in_atomic_block and not _is_of_test(one)]


def _is_of_test(connection: Any) -> bool:
    """Whether ``TestCase`` began the transaction, which it never commits."""
    return any(block._from_testcase for block in connection.atomic_blocks)


def confirm(lease: Lease) -> None:
    """Ask Redis whether the lease is held, and extend it: a commit may follow.

    Raises:
        LockLostError: it is not held.
    """
    try:
        lease.extend()
    except (redis.ConnectionError, redis.TimeoutError):  # unknown: the deadline decides
        lease.check()


def _reused(lock: RedisLock) -> HeldLock | None:
    """Return what an open transaction of this thread holds, if that includes the lock."""
    opened = connections.all(initialized_only=True)
    hooks = (entry[1] for connection in opened for entry in connection.run_on_commit)
    found = (hook.held for hook in hooks if isinstance(hook, ReleaseHook))
    return next((held for held in found if held.includes(lock)), None)

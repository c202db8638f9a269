"""A lock whose release is a hook of transactions."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from django.db import connections

from redis_lock_decorators.errors import LockNotOwnedError
from redis_lock_decorators.redislock import RedisLock

log = logging.getLogger("redis_lock_decorators.contrib.django")


class HeldLock:
    """A lock that one or more transactions hold."""

    def __init__(self, lock: RedisLock) -> None:
        self._block = ExitStack()
        self.lease = self._block.enter_context(lock)
        self._aliases: set[str] = set()

    def includes(self, lock: RedisLock) -> bool:
        """Whether it holds all keys of a lock, on the same server."""
        lease = self.lease
        is_same = lease._port.client is lock._config.port().client
        return is_same and set(lock._own_keys()) <= set(lease._claim.keys)

    def join(self, alias: str) -> None:
        """Hold the lock until the transaction of this database has ended, too."""
        if alias not in self._aliases:
            self._aliases.add(alias)
            connection, hook = connections[alias], ReleaseHook(self, alias)
            connection.on_commit(hook, robust=True)
            # The first hook: those of the program, also earlier ones, may fail or take the lock.
            hooks = connection.run_on_commit
            if hooks and hooks[-1][1] is hook:
                hooks.insert(0, hooks.pop())

    def end(self, alias: str, error: BaseException | None) -> None:
        """Release the lock if the last transaction has ended; ``error`` if it was rolled back."""
        self._aliases.discard(alias)
        if not self._aliases:
            self._block.__exit__(type(error) if error else None, error, None)


class ReleaseHook:
    """Called by Django after the commit; after a rollback Django deletes it."""

    def __init__(self, held: HeldLock, alias: str) -> None:
        self.held, self._alias = held, alias
        self._has_ended = False
        self.__qualname__ = f"release of the lock {held.lease.lock_name!r:.80}"  # logged by Django

    def __call__(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.held.end(self._alias, error)

    def __del__(self) -> None:
        try:
            self._end(RuntimeError("the transaction was rolled back"))
        except LockNotOwnedError:
            pass  # nothing was committed that the lock protects
        except Exception as error:  # whose text may contain an address with a password
            log.warning("a lock was not released after a rollback: %s", type(error).__name__)

"""pottery's ``AIORedlock``, for tasks."""

from __future__ import annotations

import asyncio

from redis.exceptions import RedisError

from redis_lock_decorators import LockError, LockNotOwnedError
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators.asyncio import Lease, RedisLock
from redis_lock_decorators.compat.pottery.base import RedlockBase, log, longest_wait, pause
from redis_lock_decorators.compat.pottery.errors import (
    ExtendUnlockedLock,
    QuorumNotAchieved,
    ReleaseUnlockedLock,
)


class AIORedlock(RedlockBase[Lease]):
    __doc__ = RedlockBase.__doc__

    def _lock(self) -> RedisLock:
        return RedisLock(self._name, **self._options())

    def _owner(self) -> object:
        return asyncio.current_task()

    async def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> bool:
        """Acquire the lock; return False if it was not free within ``timeout`` seconds.

        A timeout of -1 means no limit. While the server fails it is tried again, as in pottery.
        """
        is_acquired = await self._acquire(blocking, timeout, raise_on_redis_errors)
        return self._hold(is_acquired)

    async def _acquire(self, blocking: bool, timeout: float, raises: bool | None = None) -> bool:
        wait = left = longest_wait(blocking, timeout)
        began = monotonic()
        while True:
            try:
                return self._start(await self._lock().acquire(acquire_time=left))
            except LockError:
                raise
            except RedisError as error:
                self._failed(error, raises)
            if wait is not None:
                left = max(0, wait - (monotonic() - began))
                if not left:
                    return False
            await asyncio.sleep(pause())

    async def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return for how many seconds this object still holds the lock; 0 if it does not."""
        lease = self._held_lease()
        try:
            if lease is not None and await lease.owned():
                return lease.remaining()
        except RedisError as error:
            self._failed(error, raise_on_redis_errors)
        return 0

    async def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Let the lock expire ``auto_release_time`` seconds from now.

        Raises:
            ExtendUnlockedLock: this object does not hold it, or that is unknown.
            TooManyExtensions: it has been extended ``num_extensions`` times.
        """
        lease = self._lease_to_extend()
        try:
            await lease.extend(self.auto_release_time)
        except LockNotOwnedError as error:
            raise ExtendUnlockedLock(self.key, self.masters) from error
        except RedisError as error:
            self._failed(error, raise_on_redis_errors, ExtendUnlockedLock)
        self._extensions += 1

    async def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release the lock; if ``redis_errors`` of the error is not empty, it can be repeated.

        Raises:
            ReleaseUnlockedLock: this object does not hold it, or that is unknown.
        """
        await self._release(self._held_lease(), raise_on_redis_errors)

    async def _release(
        self, lease: Lease | None, raise_on_redis_errors: bool | None = None
    ) -> None:
        if lease is None:
            raise ReleaseUnlockedLock(self.key, self.masters)
        try:
            await lease.release()
        except LockNotOwnedError as error:
            self._forget(lease)
            raise ReleaseUnlockedLock(self.key, self.masters) from error
        except RedisError as error:
            self._failed(error, raise_on_redis_errors, ReleaseUnlockedLock)
        self._forget(lease)

    async def __aenter__(self) -> AIORedlock:
        blocking, timeout = self.context_manager_blocking, self.context_manager_timeout
        is_own = type(self).acquire is AIORedlock.acquire  # that of a subclass may do more
        if not await (
            self._acquire(blocking, timeout)
            if is_own
            else self.acquire(blocking=blocking, timeout=timeout)
        ):
            raise QuorumNotAchieved(self.key, self.masters)
        self._enter_block()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self._release(self._leave_block())
        except Exception as failure:
            if kind is None:
                raise
            log.warning("%s", failure)

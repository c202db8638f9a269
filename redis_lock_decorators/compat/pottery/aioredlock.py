"""pottery's ``AIORedlock``, for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from redis_lock_decorators import LockError, LockNotOwnedError
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.awaited import as_async
from redis_lock_decorators._shared.block_calls import BlockCall, has_own
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod
from redis_lock_decorators.asyncio import Lease, RedisLock
from redis_lock_decorators.asyncio._task_tokens import current_owner
from redis_lock_decorators.asyncio.lease import abandon
from redis_lock_decorators.compat.open_blocks import OpenBlock, acquired_by
from redis_lock_decorators.compat.pottery.base import (
    RedlockBase,
    is_result,
    log,
    longest_wait,
    pause,
)
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
        return current_owner()

    # What is acquired or released belongs to the task that calls the method, even if another one
    # awaits the coroutine: before Python 3.12, wait_for(lock.release(), 1) runs it in another task.

    @as_async
    def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Acquire the lock; return False if it was not free within ``timeout`` seconds.

        A timeout of -1 means no limit. While the server fails it is tried again, as in pottery.
        """
        return self._acquire_for(self._owner(), blocking, timeout, raise_on_redis_errors)

    async def _acquire_for(
        self, owner: object, blocking: bool, timeout: float, raises: bool | None
    ) -> bool:
        lease = None
        try:
            lease = await self._acquire(blocking, timeout, raises)
            return self._hold(lease, owner)
        except BaseException:
            await abandon(lease)
            raise

    async def _acquire(
        self, blocking: bool, timeout: float, raises: bool | None = None, lease: Lease | None = None
    ) -> Lease | None:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
        wait = left = longest_wait(blocking, timeout)
        began = monotonic()
        while True:
            try:
                lease = await self._lock().acquire(acquire_time=left)
                self._start(lease)
                return lease
            except LockError:
                raise
            except RedisError as error:
                self._failed(error, raises)
            except BaseException:
                await abandon(lease)
                raise
            if wait is not None:
                left = max(0, wait - (monotonic() - began))
                if not left:
                    return None
            await asyncio.sleep(pause())

    @as_async
    def locked(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, float]:
        """Return for how many seconds this object still holds the lock; 0 if it does not."""
        return self._locked(self._held_lease(), raise_on_redis_errors)

    async def _locked(self, lease: Lease | None, raise_on_redis_errors: bool | None) -> float:
        try:
            if lease is not None and await lease.owned():
                return lease.remaining()
        except RedisError as error:
            self._failed(error, raise_on_redis_errors)
        return 0

    @as_async
    def extend(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, None]:
        """Let the lock expire ``auto_release_time`` seconds from now.

        Raises:
            ExtendUnlockedLock: this object does not hold it, or that is unknown.
            TooManyExtensions: it has been extended ``num_extensions`` times.
        """
        return self._extend(self._held_lease(), raise_on_redis_errors)

    async def _extend(self, held: Lease | None, raise_on_redis_errors: bool | None) -> None:
        lease = self._checked_to_extend(held)
        try:
            await lease.extend(self.auto_release_time)
        except LockNotOwnedError as error:
            raise ExtendUnlockedLock(self.key, self.masters) from error
        except RedisError as error:
            self._failed(error, raise_on_redis_errors, ExtendUnlockedLock)
        self._extensions += 1

    @as_async
    def release(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, None]:
        """Release the lock; if ``redis_errors`` of the error is not empty, it can be repeated.

        Raises:
            ReleaseUnlockedLock: this object does not hold it, or that is unknown.
        """
        return self._release(self._lease_to_release(), raise_on_redis_errors)

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

    @as_async
    def _begin(self, block: Block[OpenBlock[Lease]]) -> Coroutine[Any, Any, AIORedlock]:
        # The block is that of the task that calls the method, even if another one awaits the
        # coroutine: before Python 3.12, wait_for(lock.__aenter__(), 1) runs it in a separate task.
        return self._enter(block, block.begin(), self._owner())

    async def _enter(
        self,
        block: Block[OpenBlock[Lease]],
        has_exit: bool,
        owner: object,
        lease: Lease | None = None,
    ) -> AIORedlock:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
        blocking, timeout = self.context_manager_blocking, self.context_manager_timeout
        call = BlockCall(self)
        try:
            if has_own(self, "acquire", _ORIGINALS):  # it may do more
                acquire = partial(self.acquire, blocking=blocking, timeout=timeout)
                is_acquired = await call.run_awaiting(acquire)
                lease = acquired_by(call)
            else:
                lease = await self._acquire(blocking, timeout)
                is_acquired = lease is not None
            if not is_acquired:
                raise QuorumNotAchieved(self.key, self.masters)
            self._blocks.enter(block, has_exit, owner, lease)
            return self
        except BaseException:
            self._blocks.drop(block)
            await abandon(lease or acquired_by(call))
            raise

    async def _leave(
        self,
        block: Block[OpenBlock[Lease]],
        reference: object,
        kind: object,
        error: object,
        trace: object,
        left: OpenBlock[Lease] | None = None,
        call: BlockCall | None = None,
        held: OpenBlock[Lease] | None = None,
    ) -> None:
        # The last three are never passed: as parameters they are set before any interruption.
        try:
            block.begin()
            left = self._blocks.begin_exit(block)  # before: the next line may be interrupted
            left = self._blocks.leave(block, self._owner())
            is_own = has_own(self, "release", _ORIGINALS)  # it may do more
            held = self._blocks.to_release(left, self._last_lease(), is_own)
            if is_own:
                call = BlockCall(self, held, is_release=True, owner=self._owner())
                await call.run_awaiting(self.release)
            else:
                await self._release(self._lease_of(held))
        except BaseException as failure:
            is_interrupted, owner = not is_result(failure), self._owner()
            rest = self._blocks.to_abandon(block, owner, left, held, call, is_interrupted)
            for one in rest:
                await abandon(one)
            if is_interrupted or kind is None:
                raise
            log.warning("%s", failure)
        finally:
            self._blocks.keep(left)

    if TYPE_CHECKING:

        async def __aenter__(self) -> AIORedlock: ...

        async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __aenter__ = EnterMethod(_begin)
        __aexit__ = ExitMethod(_leave)


_ORIGINALS = {"acquire": AIORedlock.acquire, "release": AIORedlock.release}

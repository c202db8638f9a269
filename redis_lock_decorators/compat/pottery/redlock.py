"""pottery's ``Redlock``, for threads."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from redis_lock_decorators import Lease, LockError, LockNotOwnedError, RedisLock
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.block_calls import BlockCall, has_own, release_completely
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod, owned
from redis_lock_decorators._shared.exits import BlockRef
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
from redis_lock_decorators.lease import abandon


class Redlock(RedlockBase[Lease]):
    __doc__ = RedlockBase.__doc__

    def _lock(self) -> RedisLock:
        return RedisLock(self._name, **self._options())

    def _owner(self) -> object:
        return threading.current_thread()

    def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> bool:
        """Acquire the lock; return False if it was not free within ``timeout`` seconds.

        A timeout of -1 means no limit. While the server fails it is tried again, as in pottery.
        """
        lease = None
        try:
            lease = self._acquire(blocking, timeout, raise_on_redis_errors)
            return self._hold(lease, self._owner())
        except BaseException:
            abandon(lease)
            raise

    def _acquire(
        self, blocking: bool, timeout: float, raises: bool | None = None, lease: Lease | None = None
    ) -> Lease | None:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
        wait = left = longest_wait(blocking, timeout)
        began = monotonic()
        while True:
            try:
                lease = self._lock().acquire(acquire_time=left)
                self._start(lease)
                return lease
            except LockError:
                raise
            except RedisError as error:
                self._failed(error, raises)
            except BaseException:
                abandon(lease)
                raise
            if wait is not None:
                left = max(0, wait - (monotonic() - began))
                if not left:
                    return None
            time.sleep(pause())

    def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return for how many seconds this object still holds the lock; 0 if it does not."""
        lease = self._held_lease()
        try:
            if lease is not None and lease.owned():
                return lease.remaining()
        except RedisError as error:
            self._failed(error, raise_on_redis_errors)
        return 0

    def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Let the lock expire ``auto_release_time`` seconds from now.

        Raises:
            ExtendUnlockedLock: this object does not hold it, or that is unknown.
            TooManyExtensions: it has been extended ``num_extensions`` times.
        """
        lease = self._checked_to_extend(self._held_lease())
        try:
            lease.extend(self.auto_release_time)
        except LockNotOwnedError as error:
            raise ExtendUnlockedLock(self.key, self.masters) from error
        except RedisError as error:
            self._failed(error, raise_on_redis_errors, ExtendUnlockedLock)
        self._extensions += 1

    def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release the lock; if ``redis_errors`` of the error is not empty, it can be repeated.

        Raises:
            ReleaseUnlockedLock: this object does not hold it, or that is unknown.
        """
        release = partial(self._release, raise_on_redis_errors=raise_on_redis_errors)
        release_completely(self._lease_to_release, release, abandon, is_result)

    def _release(self, lease: Lease | None, raise_on_redis_errors: bool | None = None) -> None:
        if lease is None:
            raise ReleaseUnlockedLock(self.key, self.masters)
        try:
            lease.release()
        except LockNotOwnedError as error:
            self._forget(lease)
            raise ReleaseUnlockedLock(self.key, self.masters) from error
        except RedisError as error:
            self._failed(error, raise_on_redis_errors, ReleaseUnlockedLock)
        self._forget(lease)

    def _enter(self, block: Block[OpenBlock[Lease]], lease: Lease | None = None) -> Redlock:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
        blocking, timeout = self.context_manager_blocking, self.context_manager_timeout
        call = BlockCall(self)
        has_exit = block.begin()
        try:
            if has_own(self, "acquire", _ORIGINALS):  # it may do more
                acquire = partial(self.acquire, blocking=blocking, timeout=timeout)
                is_acquired = call.run(acquire)
                lease = acquired_by(call)
            else:
                lease = self._acquire(blocking, timeout)
                is_acquired = lease is not None
            if not is_acquired:
                raise QuorumNotAchieved(self.key, self.masters)
            self._blocks.enter(block, has_exit, self._owner(), lease)
            return self
        except BaseException:
            self._blocks.drop(block)
            abandon(lease or acquired_by(call))
            raise

    def _leave(
        self,
        reference: BlockRef[Block[OpenBlock[Lease]]],
        kind: object,
        error: object,
        trace: object,
        left: OpenBlock[Lease] | None = None,
        call: BlockCall | None = None,
        held: OpenBlock[Lease] | None = None,
    ) -> None:
        # The last three are never passed: as parameters they are set before any interruption.
        try:
            block = owned(reference)
            block.begin()
            left = self._blocks.begin_exit(block)  # before: the next line may be interrupted
            left = self._blocks.leave(block, self._owner())
            is_own = has_own(self, "release", _ORIGINALS)  # it may do more
            held = self._blocks.to_release(left, self._last_lease(), is_own)
            if is_own:
                call = BlockCall(self, held, is_release=True, owner=self._owner())
                call.run(self.release)
            else:
                self._release(self._lease_of(held))
        except BaseException as failure:
            is_interrupted, owner = not is_result(failure), self._owner()
            rest = self._blocks.to_abandon(
                owned(reference), owner, left, held, call, is_interrupted
            )
            for one in rest:
                abandon(one)
            if is_interrupted or kind is None:
                raise
            log.warning("%s", failure)
        finally:
            self._blocks.keep(left)

    def _abandon_block(self, block: Block[OpenBlock[Lease]]) -> None:
        """Release what a block holds whose exit was interrupted."""
        if block.held is not None:
            abandon(block.held.hold)

    if TYPE_CHECKING:

        def __enter__(self) -> Redlock: ...

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __enter__ = EnterMethod(_enter)
        __exit__ = ExitMethod(_leave, _abandon_block)


_ORIGINALS = {"acquire": Redlock.acquire, "release": Redlock.release}

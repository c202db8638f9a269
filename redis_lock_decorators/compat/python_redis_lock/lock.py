"""python-redis-lock's ``Lock``, over the drop-in replacement of redis-py's."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from redis_lock_decorators import ConfigurationError, LockNotOwnedError
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.redispy_adjust import NoExpiryError
from redis_lock_decorators._flow.requests import is_unknown
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._rules.options import checked_switch
from redis_lock_decorators._shared.block_calls import (
    BlockCall,
    has_own,
    note_acquired,
    release_completely,
    to_release,
)
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod, owned
from redis_lock_decorators._shared.exits import BlockRef, has_begun
from redis_lock_decorators._shared.function_args import refuse_no_client
from redis_lock_decorators._shared.redispy_tokens import TokenHold
from redis_lock_decorators.compat.open_blocks import Call, OpenBlock, OpenBlocks, acquired_by
from redis_lock_decorators.compat.python_redis_lock import errors
from redis_lock_decorators.compat.python_redis_lock.arguments import (
    checked_expire,
    checked_id,
    checked_name,
    checked_signal_expire,
    refuse_timeout,
)
from redis_lock_decorators.compat.python_redis_lock.resets import PREFIX, log, notify, reset
from redis_lock_decorators.lock import Lock as RedisPyLock


class Lock:
    """A lock with the arguments, methods, keys and errors of python-redis-lock's.

    Args:
        redis_client: any client that ``RedisLock`` accepts; ``strict`` has no effect.
        name: the name; the Redis key is ``lock:<name>``.
        expire: the time to live, in seconds; None means that the lock does not expire.
        id: the value of the key, which proves who holds it; None generates one, and another one in
            each forked process that acquires. Another ``Lock`` with this id, in any process, can
            extend and release what this one has acquired.
        auto_renewal: renew the lock until it is released or its process ends; needs ``expire``.
        signal_expire: how long, in milliseconds, a release notifies processes that still wait by
            python-redis-lock itself; 0 sends no notification, which saves a round trip.
        blocking: whether a block waits for the lock; otherwise it raises ``NotAcquired``.
    """

    def __init__(
        self,
        redis_client: Any,
        name: str,
        expire: float | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
        strict: bool = True,
        signal_expire: int = 1000,
        blocking: bool = True,
    ) -> None:
        refuse_no_client(redis_client, "redis_client")
        self._name, self._id = checked_name(name), checked_id(id)
        self._generates_id, self._process = id is None, fork.process_id
        self._expire = checked_expire(expire)
        self._renews = checked_switch("auto_renewal", auto_renewal)
        if self._renews and not self._expire:
            raise ConfigurationError("auto_renewal=True needs expire=…, in seconds")
        self._signal_expire = checked_signal_expire(signal_expire)
        self.blocking = checked_switch("blocking", blocking)
        kind = partial(RedisPyLock, thread_local=False, auto_renew=self._renews)
        self._lock_with = partial(kind, redis_client, PREFIX + name)
        self._lock = self._lock_with(self._expire)
        self._blocks = OpenBlocks(partial(_on_block_gone, self._lock), _is_over)

    @property
    def id(self) -> str:
        """The value of the key while this id holds the lock."""
        return self._id

    def get_owner_id(self) -> str | None:
        """Ask Redis for the id that holds the lock; None if it is free."""
        (owner,) = run(holders(self._lock._port(), (self._lock._key,)))
        return (
            None
            if owner is None
            else owner.encode(errors="surrogateescape").decode(errors="replace")
        )

    def locked(self) -> bool:
        """Ask Redis whether the lock is held, by whatever id."""
        return self._lock.locked()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; return False if not in ``timeout`` seconds (None, 0: no limit)."""
        hold, slot, owner = None, self._lock.local._slot(), threading.current_thread()
        before = slot.hold
        try:
            hold = self._acquire(blocking, timeout)
            if hold is not None and not note_acquired(self, OpenBlock(owner, hold), owner):
                self._blocks.note_acquired(owner, hold)
            return hold is not None
        except BaseException:
            self._lock._abandon(hold or slot.new_hold(before, ref(owner)))
            raise

    def _acquire(self, blocking: bool, timeout: float | None = None) -> TokenHold | None:
        checked_switch("blocking", blocking)
        refuse_timeout(blocking, timeout, None if self._renews else self._expire)
        if self._generates_id and self._process != fork.process_id:
            self._id, self._process = checked_id(None), fork.process_id
        try:
            if (hold := self._try(False)) is not None:
                return hold
        except Exception as error:
            if not (blocking and is_unknown(self._lock._port(), error)):
                raise  # else wait for the server, too; it may have acquired the lock
        if self.get_owner_id() == self._id:
            raise errors.AlreadyAcquired(
                f"the id {self._id!r:.40} holds lock {self._name!r} already; if by an acquire() "
                "without a reply, release() it"
            )
        return self._try(True, timeout) if blocking else None

    def _try(self, blocking: bool, timeout: float | None = None) -> TokenHold | None:
        request = self._lock._acquire_request(blocking, timeout or None, self._id, None)
        hold = TokenHold(request.claim, ref(threading.current_thread()))
        return hold if self._lock._acquire(hold, request) else None

    def extend(self, expire: float | None = None) -> None:
        """Let the lock expire ``expire`` seconds from now; None means the lock's own ``expire``."""
        if not (seconds := checked_expire(expire) or self._expire):
            raise TypeError("extend(expire=…) needs the seconds, as the lock has no expire")
        try:
            self._holder(self._own_block(), seconds).extend(seconds, replace_ttl=True)
        except LockNotOwnedError as error:
            raise errors.NotAcquired(str(error)) from error
        except NoExpiryError as error:
            raise errors.NotExpirable(f"lock {self._name!r} has no expiry") from error

    def release(self) -> None:
        """Release the lock; after a connection error it can be called again."""
        release_completely(self._to_release, self._release, self._abandon, _is_result)

    def _to_release(self) -> OpenBlock[TokenHold]:
        return self._own_block() or self._last()

    def _release(self, block: OpenBlock[TokenHold] | None) -> None:
        block = block or self._last()
        self._check(block)
        hold = block.hold
        try:
            if hold is not None and hold.claim.is_of_this_process():
                self._lock._release(hold)
            else:
                self._with_id(self._expire).release()
        except LockNotOwnedError as error:
            raise errors.NotAcquired(str(error)) from error
        self._blocks.forget(hold)
        notify(self._lock._port(), self._name, self._signal_expire)

    def _abandon(self, block: OpenBlock[TokenHold] | None) -> None:
        """Release what is still held, after an exception such as KeyboardInterrupt."""
        if block is not None:
            self._lock._abandon(block.hold)

    def reset(self) -> None:
        """Release the lock, whoever holds it."""
        reset(self._lock._port(), self._name, self._signal_expire)

    def _enter(self, block: Block[OpenBlock[TokenHold]], hold: TokenHold | None = None) -> Lock:
        # ``hold`` is never passed: as a parameter it is set before any interruption.
        has_exit, call = block.begin(), BlockCall(self)
        slot, owner = self._lock.local._slot(), threading.current_thread()
        before = slot.hold
        try:
            if has_own(self, "acquire", _ORIGINALS):  # it may do more
                is_acquired = call.run(partial(self.acquire, self.blocking))
                hold = acquired_by(call)
            else:
                hold = self._acquire(self.blocking)
                is_acquired = hold is not None
            if not is_acquired:
                raise errors.NotAcquired(f"lock {self._name!r} is not free")
            ownership = None if hold is None else hold.hand_ownership()
            self._blocks.enter(block, has_exit, owner, hold, ownership)
            return self
        except BaseException:
            self._blocks.drop(block)
            noted = acquired_by(call)
            self._lock._abandon(hold or noted or slot.new_hold(before, ref(owner)))
            raise

    def _leave(
        self,
        reference: BlockRef[Block[OpenBlock[TokenHold]]],
        kind: object,
        error: object,
        trace: object,
        left: OpenBlock[TokenHold] | None = None,
        call: BlockCall | None = None,
        held: OpenBlock[TokenHold] | None = None,
    ) -> None:
        # The last three are never passed: as parameters they are set before any interruption.
        try:
            block = owned(reference)
            block.begin()
            left = self._blocks.begin_exit(block)  # before: the next line may be interrupted
            left = self._blocks.leave(block, threading.current_thread())
            is_own = has_own(self, "release", _ORIGINALS)  # it may do more
            held = self._blocks.to_release(left, self._lock.local._slot().hold, is_own)
            if is_own:
                call = BlockCall(self, held, is_release=True, owner=threading.current_thread())
                call.run(self.release)
            else:
                self._release(held)
        except BaseException as failure:
            is_interrupted, owner = not _is_result(failure), threading.current_thread()
            rest = self._blocks.to_abandon(
                owned(reference), owner, left, held, call, is_interrupted
            )
            for one in rest:
                self._lock._abandon(one)
            if is_interrupted or kind is None:
                raise
            log.warning("lock %r was not released (%s)", self._name, type(failure).__name__)
        finally:
            self._blocks.keep(left)
            if left is not None and left.hold is not None and not left.hold.is_gone:
                left.hold.take_ownership(left.ownership)  # a subclass has kept it

    def _abandon_block(self, block: Block[OpenBlock[TokenHold]]) -> None:
        """Release what a block holds whose exit was interrupted."""
        if block.held is not None:
            self._lock._abandon(block.held.hold)

    def _share(self, block: Block[OpenBlock[TokenHold]]) -> None:
        self._blocks.share(block)

    if TYPE_CHECKING:

        def __enter__(self) -> Lock: ...

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __enter__ = EnterMethod(_enter)
        __exit__ = ExitMethod(_leave, _abandon_block)

    def _own_block(self) -> OpenBlock[TokenHold] | None:
        """The block that this thread leaves, else the last one that it has entered."""
        owner = threading.current_thread()
        return to_release(self, partial(self._blocks.innermost, owner), owner)

    def _last(self) -> OpenBlock[TokenHold]:
        """What this object has acquired last, as a block; it may have acquired nothing."""
        return self._blocks.acquired(threading.current_thread(), self._lock.local._slot().hold)

    def _holds(self, block: OpenBlock[TokenHold]) -> bool:
        return block.hold is not None and block.hold is self._lock.local._slot().hold

    def _check(self, block: OpenBlock[TokenHold] | None) -> None:
        """Refuse what concerns a lock that this block, or this process, does not hold by the id."""
        is_copy = self._generates_id and self._process != fork.process_id
        if is_copy or (block is not None and block.process != fork.process_id):
            why = "belongs to the process that this one was forked from"
        elif block is not None and block.is_block and block.is_empty:
            why = "was not acquired by this block"
        elif block is not None and not (block.is_empty or self._holds(block)):
            why = "was released, or it expired and was acquired by another block of this object"
        else:
            return
        raise errors.NotAcquired(f"lock {self._name!r} {why}")

    def _holder(self, block: OpenBlock[TokenHold] | None, timeout: float | None) -> RedisPyLock:
        """Return the lock that holds this id: this object's, else another's with the same id."""
        self._check(block)
        is_here = self._lock.local.token is not None and (self._expire or not timeout)
        return self._lock if is_here else self._with_id(timeout)

    def _with_id(self, timeout: float | None) -> RedisPyLock:
        """Return a lock that another object may have acquired by the same id."""
        lock = self._lock_with(timeout)
        lock.local.token = self._id
        return lock


_ORIGINALS = {"acquire": Lock.acquire, "release": Lock.release}


def _is_result(error: BaseException) -> bool:
    return isinstance(error, errors.NotAcquired) or is_outcome(error)


def _is_over(hold: TokenHold) -> bool:
    return hold.is_gone


def _on_block_gone(lock: RedisPyLock, hold: TokenHold, call: Call) -> None:
    """Release what a block held whose exit was interrupted.

    If it was deleted without its exit, the hold is no longer renewed: it has no owner.
    """
    if has_begun(call):
        lock._abandon_in_background(hold)

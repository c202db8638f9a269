"""``RedisLock`` for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from redis_lock_decorators._attempts import Attempt, unheld
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.callables import Kind, refuse_later, refuse_unrun
from redis_lock_decorators._rules.misnamed import refuse_unknown
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod, owned
from redis_lock_decorators._shared.current_leases import enter
from redis_lock_decorators._shared.exits import BlockRef
from redis_lock_decorators._shared.lock_base import ACQUIRE_ARGUMENTS, CONFIGURED, LockBase
from redis_lock_decorators._shared.manual_blocks import left, refuse_ambiguous
from redis_lock_decorators._shared.wrong_with import NOT_ASYNC
from redis_lock_decorators.lease import Lease, abandon, running

if TYPE_CHECKING:
    from typing_extensions import Never

P = ParamSpec("P")
R = TypeVar("R")

#: The kinds of functions that ``call`` accepts.
_CALLED = (Kind.PLAIN,)


class RedisLock(LockBase[BlockingClient]):
    __doc__ = LockBase.__doc__

    __slots__ = ()

    _awaited = False

    def _enter(self, block: Block[Lease]) -> Lease:
        has_exit = block.begin()
        lease = unheld(self._config, self._own_names())
        try:
            refused = lease._acquire(lease._options.max_wait)
            if refused is None:
                self._open(lease, block, has_exit)
                enter(lease)
                return lease
            try:
                raise refused
            finally:
                del refused  # its traceback refers to this frame: a reference cycle
        except BaseException:
            self._abandon(lease, block)
            raise

    def _leave(
        self,
        reference: BlockRef[Block[Lease]],
        kind: object,
        error: object,
        trace: object,
        lease: Lease | None = None,
    ) -> None:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
        try:
            block = owned(reference)
            block.begin()
            lease = block.held or left(self._blocks, running)
            if lease is None:
                return refuse_ambiguous(self, self._blocks, kind)
            self._close(lease, block)
            lease._leave(reference, kind, error, trace)
        except BaseException:
            block = owned(reference)
            self._abandon(lease or block.held or left(self._blocks, running), block)
            raise

    def _abandon_block(self, block: Block[Lease]) -> None:
        """Release what a block holds whose exit was interrupted."""
        self._abandon(block.held, block)

    if TYPE_CHECKING:

        def __enter__(self) -> Lease: ...

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __enter__ = EnterMethod(_enter)
        __exit__ = ExitMethod(_leave, _abandon_block)
        __aenter__ = NOT_ASYNC

    @overload
    def acquire(self, acquire_time: None, blocking: Literal[True] = True) -> Lease: ...

    @overload
    def acquire(self, acquire_time: float | None = ..., blocking: bool = ...) -> Lease | None: ...

    def acquire(
        self,
        acquire_time: float | None = CONFIGURED,
        blocking: bool = True,
        **unknown: Never,
    ) -> Lease | None:
        """Acquire the lock; return None if it was not free within ``acquire_time`` seconds.

        Keep the lease until its ``release()``: the lock is no longer renewed once the lease is
        garbage-collected.

        Args:
            acquire_time: the longest wait in seconds, None for no limit; by default the lock's.
            blocking: False tries once and ignores ``acquire_time``.

        Raises:
            ConfigurationError: an argument is invalid.
            LockError: this thread already holds the lock in a block, so it would wait for itself.
            LockUnconfirmedError: it was free, but too few ``replicas`` confirmed it in time.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        if unknown:
            refuse_unknown(unknown, ACQUIRE_ARGUMENTS)
        wait = self._checked_wait(acquire_time, blocking)
        lease = unheld(self._config, self._own_names())
        try:
            refused = lease._acquire(wait)
            lease._claim.owner = None
            return lease if refused is None else None
        except BaseException:
            abandon(lease)
            raise

    def locked(self) -> bool:
        """Ask Redis whether any client holds the lock (of several names: any of them)."""
        return self.owner() is not None

    def owner(self) -> str | None:
        """Ask Redis for the holder's identifier (of several names: of the first that is held).

        While ``min_hold`` blocks a released lock, it is the identifier of the last holder.

        Raises:
            LockNameError: the key holds data that is not a lock.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        return run(self._owner(self._config.port()))

    def owner_info(self) -> dict[str, Any] | None:
        """Ask Redis for the information about the holder, if it has ``owner_info``.

        ``owner()`` returns the identifier alone.

        Returns:
            host, pid, thread or task, function, since (Unix time by the holder's clock, in seconds)
            and fence, as far as they are known, and the fields of the holder's function; None if
            the lock is free or its holder stored none. Of a lock that was granted in a queue it is
            there after its first renewal, 0.1 s later.

        Raises:
            LockNameError: the key holds data that is not a lock.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        return run(self._owner_info(self._config.port()))

    def force_release(self, identifier: str | None = None) -> bool:
        """Release the lock of another holder, such as a process that hangs.

        The next waiter acquires it immediately; with ``wait="cohort"``, one of the holder's own
        process after a third of ``expire``. The holder learns of the loss at its next renewal
        or when it leaves its block; until then both run the protected code.

        Args:
            identifier: release only if this is still the holder's, as returned by ``owner()``;
                None releases any holder's lock.

        Returns:
            True if the lock was held, by that identifier, and no longer is.

        Raises:
            redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
        """
        return run(self._force_release(self._config.port(), identifier))

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function while holding the lock; the arguments name a lock without a name.

        Raises:
            LockTimeoutError: the lock was not free in time; the function was not called.
            LockUnconfirmedError: too few replicas confirmed the lock; the function was not called.
            LockLostError: the function succeeded, but the lease ended before it did.
            ConfigurationError: it is no function, or its body would run after the call has
                returned.
        """
        refuse_later(function, _CALLED)
        attempt = Attempt(self._config, self._names_of(args, kwargs))
        try:
            with attempt as refused:
                if refused is None:
                    return refuse_unrun(function, function(*args, **kwargs))
                try:
                    raise refused
                finally:
                    del refused  # its traceback refers to this frame: a reference cycle
        except BaseException:
            abandon(attempt.lease)
            raise

    def _abandon(self, lease: Lease | None, block: Block[Lease]) -> None:
        """End a block after an exception such as KeyboardInterrupt at any line."""
        try:
            self._close(lease, block)
        finally:
            abandon(lease)

"""RedisLock for tasks: each acquisition of it is a Lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from redis_lock_decorators._flow.extend import owner
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._io.client_types import AsyncClient
from redis_lock_decorators._rules.awaited import as_async
from redis_lock_decorators._rules.callables import Kind, refuse_later, refuse_unrun
from redis_lock_decorators._rules.durations import checked_acquire_time
from redis_lock_decorators._rules.options import checked_switch
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod
from redis_lock_decorators._shared.function_args import checked_identifier
from redis_lock_decorators._shared.lock_base import CONFIGURED, LockBase
from redis_lock_decorators._shared.manual_blocks import left, refuse_ambiguous
from redis_lock_decorators.asyncio._cancellation import running
from redis_lock_decorators.asyncio.lease import Attempt, Lease, abandon, unheld

P = ParamSpec("P")
R = TypeVar("R")

#: What ``call`` can call; a plain function may return what is to be awaited.
_CALLED = (Kind.PLAIN, Kind.COROUTINE)


class RedisLock(LockBase[AsyncClient]):
    __doc__ = LockBase.__doc__

    __slots__ = ()

    _awaited = True

    @as_async
    def _begin(self, block: Block[Lease]) -> Coroutine[Any, Any, Lease]:
        return self._enter(block, block.begin())

    async def _enter(self, block: Block[Lease], has_exit: bool) -> Lease:
        lease = unheld(self._config, self._own_names())
        try:
            refused = lease._begin(await lease._acquire(lease._options.max_wait))
            if refused is None:
                self._open(lease, block, has_exit)
                lease._enter()
                return lease
            try:
                raise refused
            finally:
                del refused  # it refers to this frame by its trace
        except BaseException:
            await self._abandon(lease, block)
            raise

    async def _leave(
        self,
        block: Block[Lease],
        kind: object,
        error: object,
        trace: object,
        lease: Lease | None = None,
    ) -> None:
        # ``lease`` is no argument: so it is there at the first line that may be interrupted.
        try:
            block.begin()
            lease = block.held or left(self._blocks, running)
            if lease is None:
                return refuse_ambiguous(self, self._blocks, kind)
            self._close(lease, block)
            await lease.__aexit__(kind, error, trace)
        except BaseException:
            await self._abandon(lease or block.held or left(self._blocks, running), block)
            raise

    if TYPE_CHECKING:

        async def __aenter__(self) -> Lease: ...

        async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __aenter__ = EnterMethod(_begin)
        __aexit__ = ExitMethod(_leave)

    @overload
    async def acquire(self, acquire_time: None, blocking: Literal[True] = True) -> Lease: ...

    @overload
    async def acquire(
        self, acquire_time: float | None = ..., blocking: bool = ...
    ) -> Lease | None: ...

    async def acquire(
        self, acquire_time: float | None = CONFIGURED, blocking: bool = True
    ) -> Lease | None:
        """Take the lock; None if it was not free within ``acquire_time`` seconds.

        Args:
            acquire_time: the longest wait, instead of the lock's own.
            blocking: False tries once, whatever ``acquire_time`` says.

        Raises:
            LockError: this task is in a block of the lock and would wait for itself.
            LockUnconfirmedError: it was free, but too few ``replicas`` confirmed it in time.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        wait = self._config.options.max_wait
        if acquire_time is not CONFIGURED:
            wait = checked_acquire_time(acquire_time)
        checked_switch("blocking", blocking)
        lease = unheld(self._config, self._own_names())
        try:
            refused = lease._begin(await lease._acquire(wait if blocking else 0.0))
            lease._claim.owner = None
            return lease if refused is None else None
        except BaseException:
            await abandon(lease)
            raise

    async def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock (for several names: any of them)."""
        return await self.owner() is not None

    async def owner(self) -> str | None:
        """Ask Redis for the identifier of the holder (of the first name that is held).

        While ``min_hold`` keeps the lock, it is that of who released it.

        Raises:
            LockNameError: the key holds other data, no lock.
        """
        return await owner(self._config.async_port(), self._own_keys(), self._own_names())

    async def force_release(self, identifier: str | None = None) -> bool:
        """Let the lock go that somebody else holds, such as a process that hangs.

        The arguments, results and errors of ``redis_lock_decorators.RedisLock.force_release``.
        """
        seen = None if identifier is None else checked_identifier(identifier)
        return await force(self._config.async_port(), self._own_keys(), seen, self._own_names())

    async def call(
        self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the function while holding the lock, which is named by the call if not before.

        Raises:
            LockTimeoutError: the lock was not free in time; the function was not called.
            LockUnconfirmedError: it was free, but too few replicas confirmed it; nor was it called.
            LockLostError: the function succeeded, but the lease ended before it did.
            ConfigurationError: the function's body would run after the call.
        """
        refuse_later(function, _CALLED)
        async with Attempt(self._config, self._names_of(args, kwargs)) as refused:
            if refused is None:
                return refuse_unrun(function, await function(*args, **kwargs))
            try:
                raise refused
            finally:
                del refused  # it refers to this frame by its trace

    async def _abandon(self, lease: Lease | None, block: Block[Lease]) -> None:
        """End a block after an exception from outside at any line."""
        self._close(lease, block)
        await abandon(lease)

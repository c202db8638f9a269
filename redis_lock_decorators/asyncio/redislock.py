"""``RedisLock`` for asyncio tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from redis_lock_decorators._io.client_types import AsyncClient
from redis_lock_decorators._rules.awaited import as_async
from redis_lock_decorators._rules.callables import Kind, refuse_later, refuse_unrun
from redis_lock_decorators._rules.misnamed import refuse_unknown
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod
from redis_lock_decorators._shared.lock_base import ACQUIRE_ARGUMENTS, CONFIGURED, LockBase
from redis_lock_decorators._shared.manual_blocks import left, refuse_ambiguous
from redis_lock_decorators._shared.wrong_with import ONLY_ASYNC
from redis_lock_decorators.asyncio._attempts import Attempt, unheld
from redis_lock_decorators.asyncio._cancellation import TaskRef, running
from redis_lock_decorators.asyncio.lease import Lease, abandon

if TYPE_CHECKING:
    from typing_extensions import Never

P = ParamSpec("P")
R = TypeVar("R")

#: The kinds of functions that ``call`` accepts; a plain function may return an awaitable.
_CALLED = (Kind.PLAIN, Kind.COROUTINE)


class RedisLock(LockBase[AsyncClient]):
    __doc__ = LockBase.__doc__

    __slots__ = ()

    _awaited = True

    @as_async
    def _begin(self, block: Block[Lease]) -> Coroutine[Any, Any, Lease]:
        # The block is that of the task that calls the method, even if another one awaits the
        # coroutine: before Python 3.12, wait_for(lock.__aenter__(), 1) runs it in a separate task.
        return self._enter(block, block.begin(), running())

    async def _enter(self, block: Block[Lease], has_exit: bool, owner: TaskRef | None) -> Lease:
        lease = unheld(self._config, self._own_names(), owner)
        try:
            refused = lease._begin(await lease._acquire(lease._options.max_wait))
            if refused is None:
                self._open(lease, block, has_exit)
                lease._enter()
                return lease
            try:
                raise refused
            finally:
                del refused  # its traceback refers to this frame: a reference cycle
        except BaseException:
            await self._abandon(lease, block)
            raise

    async def _leave(
        self,
        block: Block[Lease],
        call: object,
        kind: object,
        error: object,
        trace: object,
        lease: Lease | None = None,
    ) -> None:
        # ``lease`` is never passed: as a parameter it is set before any interruption.
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
        __enter__ = ONLY_ASYNC

    @overload
    async def acquire(self, acquire_time: None, blocking: Literal[True] = True) -> Lease: ...

    @overload
    async def acquire(
        self, acquire_time: float | None = ..., blocking: bool = ...
    ) -> Lease | None: ...

    async def acquire(
        self,
        acquire_time: float | None = CONFIGURED,
        blocking: bool = True,
        **unknown: Never,
    ) -> Lease | None:
        """Acquire the lock; return None if it was not free within ``acquire_time`` seconds.

        The arguments and errors of ``redis_lock_decorators.RedisLock.acquire``.
        """
        if unknown:
            refuse_unknown(unknown, ACQUIRE_ARGUMENTS)
        wait = self._checked_wait(acquire_time, blocking)
        lease = unheld(self._config, self._own_names())
        try:
            refused = lease._begin(await lease._acquire(wait))
            lease._claim.owner = None
            return lease if refused is None else None
        except BaseException:
            await abandon(lease)
            raise

    async def locked(self) -> bool:
        """Ask Redis whether any client holds the lock (of several names: any of them)."""
        return await self.owner() is not None

    async def owner(self) -> str | None:
        """Ask Redis for the holder's identifier (of several names: of the first that is held).

        The result and errors of ``redis_lock_decorators.RedisLock.owner``.
        """
        return await self._owner(self._config.async_port())

    async def owner_info(self) -> dict[str, Any] | None:
        """Ask Redis for the information about the holder, if it has ``owner_info``.

        The result and errors of ``redis_lock_decorators.RedisLock.owner_info``.
        """
        return await self._owner_info(self._config.async_port())

    async def force_release(self, identifier: str | None = None) -> bool:
        """Release the lock of another holder, such as a process that hangs.

        The arguments, result and errors of ``redis_lock_decorators.RedisLock.force_release``.
        """
        return await self._force_release(self._config.async_port(), identifier)

    async def call(
        self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the function while holding the lock; the arguments name a lock without a name.

        The errors of ``redis_lock_decorators.RedisLock.call``.
        """
        refuse_later(function, _CALLED)
        async with Attempt(self._config, self._names_of(args, kwargs)) as refused:
            if refused is None:
                return refuse_unrun(function, await function(*args, **kwargs))
            try:
                raise refused
            finally:
                del refused  # its traceback refers to this frame: a reference cycle

    async def _abandon(self, lease: Lease | None, block: Block[Lease]) -> None:
        """End a block after an exception such as KeyboardInterrupt at any line."""
        try:
            self._close(lease, block)
        finally:
            await abandon(lease)

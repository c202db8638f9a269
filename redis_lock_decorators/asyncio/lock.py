"""redis-py's asyncio ``Lock`` for tasks: ``client.lock("x", timeout=3, lock_class=Lock)``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.redispy_lock import AcquireRequest
from redis_lock_decorators._flow.requests import EXHAUSTED
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background.closing import is_being_closed
from redis_lock_decorators._io.background.unreleased import release_soon, unreleased
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._io.client_types import AsyncClient
from redis_lock_decorators._rules.awaited import as_async
from redis_lock_decorators._shared.block_calls import BlockCall, note_acquired, to_release
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod
from redis_lock_decorators._shared.redispy_base import RedisPyLockBase
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot, claim_of
from redis_lock_decorators._shared.settings import DEFAULT
from redis_lock_decorators.asyncio._task_tokens import TaskTokenSlots, current_owner

__all__ = ["Lock"]


class Lock(RedisPyLockBase[AsyncClient]):
    __doc__ = RedisPyLockBase.__doc__

    _awaited = True

    # The token belongs to the task that calls the method, even if another one awaits the coroutine:
    # before Python 3.12, wait_for(lock.acquire(), 1) runs it in a separate task.

    @as_async
    def _begin(self, block: Block[TokenHold]) -> Coroutine[Any, Any, Lock]:
        token_slot, has_exit = self.local._own_slot(), block.begin()
        if self._has_own("acquire"):
            call, acquiring = BlockCall(self), self.acquire()
            acquire_own = partial(call.run_awaiting, lambda: acquiring)
            return self._enter(acquire_own, block, has_exit, call=call)
        request = self._acquire_request(None, None, None, None)
        hold = TokenHold(request.claim, self._running(), in_block=has_exit)
        acquire = partial(self._acquire, token_slot, hold, request)
        return self._enter(acquire, block, has_exit, hold)

    @as_async
    def _end(
        self, block: Block[TokenHold], call: object, kind: object, error: object, trace: object
    ) -> Coroutine[Any, Any, None]:
        block.begin()
        hold = self._hold_of(block)
        leave = partial(self._leave, block, call, hold, kind is not None)
        if self._has_own("release"):
            releasing = BlockCall(self, hold, is_release=True, owner=self._running())
            return leave(partial(releasing.run_awaiting, self.release), releasing)
        return leave(partial(self._release, hold))

    if TYPE_CHECKING:

        def __aenter__(self) -> Coroutine[Any, Any, Lock]: ...

        def __aexit__(
            self, kind: object, error: object, trace: object
        ) -> Coroutine[Any, Any, None]: ...

    else:
        __aenter__ = EnterMethod(_begin)
        __aexit__ = ExitMethod(_end)

    @as_async
    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        *,
        sleep: float | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Acquire the lock; return False if it was not free in time.

        The arguments and errors of ``redis_lock_decorators.lock.Lock.acquire``.
        """
        request = self._acquire_request(blocking, blocking_timeout, token, sleep)
        hold = TokenHold(request.claim, self._running())
        return self._acquire(self.local._own_slot(), hold, request, is_call=True)

    @as_async
    def release(self) -> Coroutine[Any, Any, None]:
        """Release the lock; after a connection error it can be called again.

        The errors of ``redis_lock_decorators.lock.Lock.release``.
        """
        return self._release(to_release(self, self._found, self._running()))

    @as_async
    def extend(
        self, additional_time: float, replace_ttl: bool = False
    ) -> Coroutine[Any, Any, Literal[True]]:
        """Add seconds to the remaining time, or with ``replace_ttl`` set it to that many seconds.

        The errors of ``redis_lock_decorators.lock.Lock.extend``.
        """
        change = self._extension(additional_time, replace_ttl)
        return self._adjust(self._held_here(), change)

    @as_async
    def reacquire(self) -> Coroutine[Any, Any, Literal[True]]:
        """Set the remaining time to the full timeout.

        The errors of ``redis_lock_decorators.lock.Lock.reacquire``.
        """
        return self._adjust(self._held_here(), None)

    async def locked(self) -> bool:
        """Ask Redis whether any client holds the lock."""
        return await flow.is_locked(self._port(), self._key)

    @as_async
    def owned(self) -> Coroutine[Any, Any, bool]:
        """Ask Redis whether this task holds the lock."""
        return self._owned(claim_of(self._held_here()))

    async def _enter(
        self,
        acquire: Callable[[], Awaitable[bool]],
        block: Block[TokenHold],
        has_exit: bool,
        hold: TokenHold | None = None,
        call: BlockCall | None = None,
    ) -> Lock:
        try:
            if await acquire():
                self._open(hold if call is None else call.held, block, has_exit)
                return self
            raise self._busy_error()
        except BaseException:
            await self._abandon(hold if call is None else call.held)
            raise

    async def _leave(
        self,
        block: Block[TokenHold],
        call: object,
        hold: TokenHold | None,
        failed: bool,
        release: Callable[[], Awaitable[None]],
        releasing: BlockCall | None = None,
    ) -> None:
        try:
            await release()
        except BaseException as failure:
            is_interrupted = isinstance(failure, EXHAUSTED) or not is_outcome(failure)
            if self._is_to_abandon(block, releasing, is_interrupted):
                await self._abandon(hold)
            if releasing is not None:
                await self._abandon(releasing.acquired_instead)
            if is_interrupted:
                raise
            if not self._is_suppressed(failure, failed):
                raise
        finally:
            self._close(block)

    async def _acquire(
        self,
        token_slot: TokenSlot,
        hold: TokenHold,
        request: AcquireRequest,
        is_call: bool = False,
    ) -> bool:
        try:
            if unreleased:
                release_soon(asyncio.get_running_loop())
            port = hold.port = self._port()
            taken = await flow.acquire(port, request)
            if taken:
                token_slot.put(self._start_renewal(hold, port))
                if is_call:
                    hold.is_free = not note_acquired(self, hold, hold.by)
            return taken
        except BaseException:
            await self._abandon(hold)
            raise

    async def _release(self, hold: TokenHold | None) -> None:
        if is_being_closed():
            return await self._release_in_background(hold)
        if hold is None or hold.is_gone:
            await self._refuse_unheld()
        try:
            hold.stop_renewal()
            await self._send_release(hold)
        except BaseException as error:
            if isinstance(error, EXHAUSTED) or not is_outcome(error):
                await self._abandon(hold)
            raise

    async def _release_in_background(self, hold: TokenHold | None) -> None:
        """Release in a separate task, as a coroutine that is being closed cannot await."""
        if hold is not None and not hold.is_gone and hold.port is not None:
            hold.stop_renewal()
            await hold.port.shield(partial(self._undo, hold))

    def _found(self, by_hand: bool = False) -> TokenHold | None:
        find = self.local._slot
        return find.to_release(by_hand) if isinstance(find, TaskTokenSlots) else find().hold

    async def _owned(self, claim: Claim | None) -> bool:
        return await flow.is_owned(self._port(), claim)

    def _token_slots(self) -> Callable[[], TokenSlot]:
        return TaskTokenSlots()

    @staticmethod
    def _running() -> ref[object]:
        return ref(current_owner())

    def _port(self) -> AsyncioPort:
        return DEFAULT.async_port(self.redis, None)

    async def _abandon(self, hold: TokenHold | None) -> None:
        """Release what is still held, after an exception such as KeyboardInterrupt."""
        if hold is None or hold.is_gone:
            return
        closed_port = hold.port if is_being_closed() else None
        port = closed_port or self._port()
        try:
            hold.forget()
            if hold.claim.state is not ENDED:
                await undo(port, hold.claim)
        except Exception as error:  # a second one from outside; not a cancellation
            unreleased.append((port.loop, partial(self._undo, hold)))
            release_soon(port.loop)
            if not isinstance(error, EXHAUSTED):
                raise

    def _abandon_in_background(self, hold: TokenHold) -> None:
        if hold.port is not None and not hold.is_gone and hold.claim.state is not ENDED:
            hold.forget()
            unreleased.append((hold.port.loop, partial(self._undo, hold)))
            release_soon(hold.port.loop)

    async def _undo(self, hold: TokenHold) -> None:
        """Release what may still be held, even if the claim is marked as released."""
        hold.forget()
        await undo(self._port(), hold.claim)


Lock._originals = {"acquire": Lock.acquire, "release": Lock.release}

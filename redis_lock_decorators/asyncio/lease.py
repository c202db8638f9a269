"""The lease of a task: one acquisition of a lock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Literal

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave, report_failure
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import (
    entered_twice,
    on_other_loop,
    record_expiry,
    reported_loss,
)
from redis_lock_decorators._flow.release import end, release
from redis_lock_decorators._flow.release_fallbacks import refuse_unfit_method
from redis_lock_decorators._flow.renewal.tracked_lease import LOOP_ENDED, TrackedLease
from redis_lock_decorators._flow.requests import EXHAUSTED, Refusal
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background.closing import is_being_closed
from redis_lock_decorators._io.background.starting import start_in_context
from redis_lock_decorators._io.background.unreleased import release_soon, unreleased
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._io.closed_loops import call_on, is_running_here
from redis_lock_decorators._rules.durations import checked_expire
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.current_leases import current, enter, forget
from redis_lock_decorators._shared.exits import has_begun
from redis_lock_decorators._shared.lease_base import LeaseBase
from redis_lock_decorators._shared.wrong_with import LEASE_ONLY_ASYNC
from redis_lock_decorators.asyncio._cancellation import BlockTask, running
from redis_lock_decorators.asyncio._on_lost import can_wait_for
from redis_lock_decorators.errors import LockError, LockNotOwnedError, LockTimeoutError, shown


class Lease(LeaseBase):
    """One acquisition of a lock, valid until its deadline.

    Its methods may be called from any task of the event loop that acquired it.
    A block within its block raises ``LockError``, as it would release the lease at its end.
    """

    __slots__ = ("_block_task", "_port", "_started")

    _port: AsyncioPort

    def __init__(self, claim: Claim, port: AsyncioPort, options: Options) -> None:
        LeaseBase.__init__(self, claim, options)
        self._port = port
        self._block_task: BlockTask | None = None
        self._started = -math.inf  # when its acquisition began

    @property
    def lost(self) -> bool:
        """Whether the lease ended before it was released.

        True once its event loop is closed. Always True in a forked child, which does not hold what
        its parent holds.
        """
        is_left = self._claim.state is not ENDED and self._port.loop.is_closed()
        return is_left or super().lost

    async def extend(self, seconds: float | None = None) -> Literal[True]:
        """Extend the lease to at least ``seconds`` from now; None means its ``expire``.

        The errors of ``redis_lock_decorators.Lease.extend``.
        """
        seconds = self._claim.expire if seconds is None else checked_expire(seconds, "seconds")
        self._refuse_elsewhere()
        try:
            await extend(self._port, self._claim, seconds)
        finally:
            if self._claim.lost_reason is not None:
                _report_loss(self)
        return True

    async def owned(self) -> bool:
        """Ask Redis whether this lease still holds the lock."""
        self._refuse_elsewhere()
        return await self._is_owned()

    async def release(self) -> None:
        """Release the lock; a second call does nothing.

        The errors of ``redis_lock_decorators.Lease.release``.
        """
        refused: LockError | None = None
        try:
            refused = self._refused_elsewhere()
            if refused is None:
                self._untrack()
                self._apply_min_hold()
                if is_being_closed():
                    await self._release_in_background()
                else:
                    method = self._options.release_method
                    await release(self._port, self._claim, method, self._notify_lost)
        except EXHAUSTED:
            unreleased.append((self._port.loop, self._undo))
            release_soon(self._port.loop)
            raise
        except BaseException as error:
            if not is_outcome(error):  # complete the release, as at the end of a block
                await abandon(self)
                raise
            self._observe_failure(error)
            raise
        finally:
            if self._claim.lost_reason is not None:
                await self._notify_and_wait()
        if refused is not None:
            raise refused

    async def __aenter__(self) -> Lease:
        try:
            self.check()
            refused = entered_twice(self._claim) or self._refused_elsewhere()
            if refused is None:
                self._claim.owner = running()
                self._enter()
                return self
        except BaseException as error:
            if not (isinstance(error, LockNotOwnedError) and is_outcome(error)):
                await abandon(self)  # no exit will follow
            raise
        raise refused

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        method = self._options.release_method
        failed = True
        try:
            if asyncio._get_running_loop() is not self._port.loop:  # most blocks need no call
                self._refuse_elsewhere()
            failed = not self._leave(error) and kind is not None
            if self._tracked is not None:
                self._port.renewer.remove(self._tracked)
            if not failed and self._options.min_hold is not None:
                self._apply_min_hold()
            if kind is not None and (
                (failed and not isinstance(error, Exception)) or is_being_closed()
            ):
                return await self._release_in_background()
            port, claim = self._port, self._claim
            try:  # the body of ``leave``: a call would cost each block another coroutine
                await release(port, claim, method, self._notify_lost)
            except Exception as failure:
                if not await report_failure(port, claim, failure, failed):
                    raise
            if not failed and claim.lost_reason is not None:
                raise reported_loss(claim)
        except BaseException:
            await abandon(self)
            raise
        finally:
            if self._claim.lost_reason is not None:
                await self._notify_and_wait()

    if not TYPE_CHECKING:
        __enter__ = LEASE_ONLY_ASYNC

    async def _notify_and_wait(self) -> None:
        """Call ``on_lost`` unless it was called, and wait for it as long as the block may."""
        self._notify_lost()
        call = self._on_lost_call
        if call is not None and call.task is not None and can_wait_for(call.task):
            await asyncio.wait([call.task], timeout=ROUND_TRIP)

    async def _undo(self) -> None:
        """Release what may still be held, even if the claim is marked as released."""
        try:
            self._leave(None)
            self._untrack()
            await undo(self._port, self._claim, notify=self._notify_lost)
        finally:
            self._notify_lost()

    async def _release_in_background(self) -> None:
        """Release in a separate task: a coroutine that is being closed cannot await.

        One that is cancelled may be cancelled again in each turn of the event loop, and waits for
        no longer than one round trip.
        """
        port = self._port
        if port.loop.is_closed():
            end(port, self._claim)
        else:
            await port.shield(self._leave_and_notify, ROUND_TRIP)

    async def _leave_and_notify(self) -> None:
        method, notify = self._options.release_method, self._notify_lost
        try:
            await leave(self._port, self._claim, method, failed=True, notify=notify)
        finally:
            self._notify_lost()

    def _refuse_elsewhere(self) -> None:
        """Refuse to await on another event loop than that of the acquisition."""
        if (refused := self._refused_elsewhere()) is not None:
            raise refused

    def _refused_elsewhere(self) -> LockError | None:
        """The error on another event loop: the connection belongs to that of the acquisition."""
        claim, loop = self._claim, self._port.loop
        if is_running_here(loop) or claim.state is ENDED or not claim.is_of_this_process():
            return None
        if claim.lost_reason is not None:
            return reported_loss(claim)
        if is_being_closed():
            return None
        if loop.is_closed():
            return record_expiry(self._port, claim, LOOP_ENDED)
        return on_other_loop(claim)

    def _acquire(self, wait: float) -> Awaitable[Refusal | None]:
        """Return what acquires within ``wait`` seconds; ``_begin`` must get its result."""
        port, options = self._port, self._options
        if options.release_method != "script":
            refuse_unfit_method(port, options.release_method)
        self._started = port.now()
        return acquire(port, self._claim, wait, options.delta, options.wait_strategy)

    def _begin(self, refusal: Refusal | None) -> LockTimeoutError | None:
        """Start the renewal; or return the error if the lock was not free in time."""
        port, options = self._port, self._options
        if refusal is not None:
            return self._refused(refusal, port.now() - self._started)
        reports = options.on_lost is not None or options.hooks
        if options.auto_renew or options.cancel_on_lost or reports:
            tracked = TrackedLease(self, _report_loss, self._claim, port, options)
            self._tracked, self._ownership = tracked, tracked.ownership
            if self._on_lost_call is not None or options.hooks:
                tracked.options = options.of_renewal
            if self._on_lost_call is not None:
                tracked.substitute = self._substitution(self._on_lost_call)
            port.renewer.add(tracked)
        return None

    def _enter(self) -> None:
        """Become the current lease; from now on a loss cancels the task that owns it."""
        enter(self)
        owner: Any = self._claim.owner
        self._block_task = None if owner is None else BlockTask(owner)

    def _leave(self, error: object) -> bool:
        """Leave the context; return whether ``error`` is the cancellation by a loss."""
        forget(self)
        block_task, self._block_task = self._block_task, None
        return block_task is not None and block_task.is_due and block_task.uncancel(error)

    def _suspend(self) -> None:
        """Leave the context without an owner, while the lease is still held."""
        self._leave(None)
        self._claim.owner = None

    def _on_block_gone(self, block: object) -> None:
        try:
            self._block_task = None
            super()._on_block_gone(block)
        finally:
            if has_begun(self._leaving):
                unreleased.append((self._port.loop, self._undo))
                release_soon(self._port.loop)

    def _notify_lost(self) -> None:
        loop = self._port.loop
        if is_running_here(loop):
            super()._notify_lost()
        else:  # its coroutine is closed on another thread, where ``on_lost`` must not run
            call_on(loop, super()._notify_lost)

    @staticmethod
    def _follow(context: Context, work: Coroutine[Any, Any, None]) -> asyncio.Future[Any]:
        return context.run(start_in_context, work)


def _report_loss(lease: Lease) -> None:
    task = lease._block_task if lease._options.cancel_on_lost else None
    if task is not None:
        task.cancel()
    lease._notify_lost()
    if task is not None and task.has_ended:  # last, as a handler of logs may raise an exception
        log.warning(
            "lock %s is lost, and no task is cancelled: the one that entered its block has "
            "ended, as before Python 3.12 in wait_for(stack.enter_async_context(lock), 1)",
            shown(lease.lock_name),
        )


async def abandon(lease: Lease | None) -> None:
    """Release what is still held, after an exception such as KeyboardInterrupt at any line."""
    if lease is None:
        return
    try:
        lease._leave(None)
        lease._untrack()
        if lease._claim.state is not ENDED:
            await undo(lease._port, lease._claim, notify=lease._notify_lost)
    except Exception as error:  # a second one from outside; not a cancellation
        unreleased.append((lease._port.loop, lease._undo))
        release_soon(lease._port.loop)
        if not isinstance(error, EXHAUSTED):
            raise
    finally:
        if lease._claim.lost_reason is not None:
            lease._notify_lost()


def current_lease() -> Lease | None:
    """Return the lease of the innermost lock that is held around this code, or None.

    It finds leases of ``async with`` blocks and of decorated async functions and generators. For
    other code use ``redis_lock_decorators.current_lease``, whose leases have plain methods.
    """
    return current(Lease, running())

"""The lease of a thread: one acquisition of a lock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import entered_twice
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.release_fallbacks import refuse_unfit_method
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._flow.requests import EXHAUSTED
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.background.helper_threads import loss_threads, releases
from redis_lock_decorators._io.background.thread_checks import refuse_half_patched
from redis_lock_decorators._io.background.worker import is_waiting_refused
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._rules.durations import checked_expire
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.current_leases import current, enter, forget
from redis_lock_decorators._shared.exits import LeaseExit, has_begun
from redis_lock_decorators._shared.lease_base import LeaseBase
from redis_lock_decorators._shared.wrong_with import LEASE_NOT_ASYNC
from redis_lock_decorators.errors import LockNotOwnedError, LockTimeoutError


class Lease(LeaseBase):
    """One acquisition of a lock, valid until its deadline.

    Its methods may be called from any thread of the process that acquired it.
    A block within its block raises ``LockError``, as it would release the lease at its end.
    """

    __slots__ = ("_mutex", "_port")

    def __init__(self, claim: Claim, port: BlockingPort, options: Options) -> None:
        LeaseBase.__init__(self, claim, options)
        self._port = port
        self._mutex = threading.RLock()  #: any thread

    def extend(self, seconds: float | None = None) -> Literal[True]:
        """Extend the lease to at least ``seconds`` from now; None means its ``expire``.

        Raises:
            ConfigurationError: ``seconds`` is invalid.
            LockNotOwnedError: the lease was released before.
            LockLostError: the lock is no longer held by this lease.
            redis.exceptions.ConnectionError: the outcome is unknown; the deadline is unchanged.
        """
        seconds = self._claim.expire if seconds is None else checked_expire(seconds, "seconds")
        try:
            with self._exclusive():
                run(extend(self._port, self._claim, seconds))
        finally:
            self._notify_lost()
        return True

    def owned(self) -> bool:
        """Ask Redis whether this lease still holds the lock."""
        return run(self._is_owned())

    def release(self) -> None:
        """Release the lock; a second call does nothing.

        Raises:
            LockLostError: the lease had ended before.
            redis.exceptions.ConnectionError: the outcome is unknown; it can be called again.
        """
        try:
            self._untrack()
            self._apply_min_hold()
            if is_waiting_refused():  # a finalizer on the renewer's thread: it must not wait
                return releases.call(self._release_and_log)
            return self._release()
        except BaseException as error:
            if not is_outcome(error):  # complete the release, as at the end of a block
                abandon(self)
            raise

    def _release(self) -> None:
        try:
            with self._exclusive():
                run(release(self._port, self._claim, self._options.release_method))
        except Exception as error:
            self._observe_failure(error)
            raise
        finally:
            self._notify_lost()

    def _release_and_log(self) -> None:
        """Release in the background, where no caller receives the error."""
        try:
            self._release()
        except Exception as error:
            log.warning("%s", error)

    def _undo(self) -> None:
        """Release in the background, unless that has been done."""
        if self._claim.state is not ENDED:
            self._undo_always()

    def _undo_always(self) -> None:
        """Release in the background, even if the claim is marked as released."""
        self._untrack()
        try:
            with self._exclusive():
                run(undo(self._port, self._claim))
        finally:
            self._notify_lost()

    def _on_block_gone(self, gone: object) -> None:
        try:
            super()._on_block_gone(gone)
        finally:
            if has_begun(self._leaving):
                releases.call(self._undo)

    def _on_exit_gone(self, _: object) -> None:
        """Release if the exit was called, but interrupted before its first line."""
        self._block = None
        if has_begun(self._leaving):
            self._on_block_gone(None)

    def __enter__(self) -> Lease:
        try:
            self.check()
            with self._exclusive():
                twice = entered_twice(self._claim)
                if twice is None:
                    self._enter()
                    return self
        except BaseException as error:
            if not (isinstance(error, LockNotOwnedError) and is_outcome(error)):
                abandon(self)  # no exit will follow
            raise
        raise twice

    def _leave(self, block: object, kind: object, error: object, trace: object) -> None:
        try:
            self._block = None
            self._begin_exit()
            if self._tracked is not None:
                self._port.renewer.remove(self._tracked)
            if kind is None and self._options.min_hold is not None:
                self._apply_min_hold()
            if is_waiting_refused():  # a generator that is garbage-collected
                return releases.call(self._release_and_log)
            with self._exclusive():
                flow = leave(
                    self._port, self._claim, self._options.release_method, kind is not None
                )
                try:
                    run(flow)
                except BaseException:
                    flow.close()  # without a warning, if ``run`` was interrupted at its entry
                    raise
        except BaseException:
            abandon(self)
            raise
        finally:
            self._claim.owner = None
            if self._claim.lost_reason is not None:
                self._notify_lost()

    if TYPE_CHECKING:

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __exit__ = LeaseExit(_leave, lambda lease: abandon(lease))
        __aenter__ = LEASE_NOT_ASYNC

    def _acquire(self, wait: float) -> LockTimeoutError | None:
        """Acquire within ``wait`` seconds; return the error if the lock was not free in time."""
        port, options = self._port, self._options
        watches = options.auto_renew or options.on_lost is not None or options.hooks
        if watches:
            port.lease_loop.check(self._claim)
        elif wait > 0 and options.wait_strategy != "poll" and len(self._claim.keys) == 1:
            refuse_half_patched(self._claim)
        if options.release_method != "script":
            refuse_unfit_method(port, options.release_method)
        self._claim.in_transition = True
        started = port.now()
        refusal = run(acquire(port, self._claim, wait, options.delta, options.wait_strategy))
        if refusal is not None:
            return self._refused(refusal, port.now() - started)
        if watches:
            tracked = TrackedLease(self, _report_loss, self._claim, port, options)
            self._tracked, self._ownership = tracked, tracked.ownership
            if self._on_lost_call is not None or options.hooks:
                tracked.options = options.of_renewal
            if self._on_lost_call is not None:
                tracked.substitute = self._substitution(self._on_lost_call)
            port.renewer.add(tracked)
            if port.lease_loop.start_error:
                port.lease_loop.refuse_unrenewed(self._claim)
        return None

    def _exclusive(self) -> AbstractContextManager[object]:
        """Return the mutex that allows one request of this lease at a time."""
        # The flow refuses a forked child. Its copy of the mutex may be locked indefinitely, by a
        # thread that exists only in the parent.
        return self._mutex if self._claim.process == fork.process_id else nullcontext()

    def _enter(self) -> None:
        """Become the current lease, owned by this thread."""
        self._claim.owner = running()
        enter(self)

    def _begin_exit(self) -> None:
        """Leave the context; until the release ends, the owner is the thread that runs the exit."""
        self._claim.owner, self._claim.in_transition = running(), True
        forget(self)

    def _suspend(self) -> None:
        """Leave the context without an owner, while the lease is still held."""
        forget(self)
        self._claim.owner = None

    @staticmethod
    def _follow(context: Context, work: Coroutine[Any, Any, None]) -> None:
        loss_threads.call(
            partial(context.run, _run_alone, work)
        )  # an event loop may run on this thread


def _run_alone(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop of its own."""
    try:
        asyncio.run(work)
    except asyncio.CancelledError:
        log.exception("on_lost failed")


def _report_loss(lease: Lease) -> None:
    """Call ``on_lost`` on another thread: the renewer's thread has other leases to renew."""
    if lease._on_lost_call is not None:
        loss_threads.call(lease._notify_lost)


def abandon(lease: Lease | None) -> None:
    """Release what is still held, after an exception such as KeyboardInterrupt at any line."""
    if lease is None:
        return
    try:
        forget(lease)
        lease._untrack()
        if lease._claim.state is ENDED:
            return
        if is_waiting_refused():
            releases.call(lease._undo)
        else:
            run(undo(lease._port, lease._claim))
    except EXHAUSTED:
        releases.call(lease._undo_always)
    except BaseException:  # a second one from outside
        releases.call(lease._undo)
        raise
    finally:
        lease._claim.owner = None
        if lease._claim.lost_reason is not None:
            lease._notify_lost()


def running() -> ref[threading.Thread]:
    """Return the running thread, in the form of ``Claim.owner``."""
    return ref(threading.current_thread())


def current_lease() -> Lease | None:
    """Return the lease of the innermost lock that is held around this code, or None.

    It finds leases of ``with`` blocks and of decorated plain functions and generators. For async
    code use ``redis_lock_decorators.asyncio.current_lease``, whose leases have async methods.
    """
    return current(Lease, running())

"""redis-py's ``Lock`` for threads: ``client.lock("x", timeout=3, lock_class=Lock)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal
from weakref import ref

from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.redispy_lock import AcquireRequest
from redis_lock_decorators._flow.requests import EXHAUSTED
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.background.helper_threads import releases
from redis_lock_decorators._io.background.thread_checks import refuse_half_patched
from redis_lock_decorators._io.background.worker import is_waiting_refused
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._shared.block_calls import (
    BlockCall,
    note_acquired,
    release_completely,
    to_release,
)
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod, owned
from redis_lock_decorators._shared.exits import BlockRef
from redis_lock_decorators._shared.redispy_base import RedisPyLockBase
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot, claim_of
from redis_lock_decorators._shared.settings import DEFAULT

__all__ = ["Lock"]


class Lock(RedisPyLockBase[BlockingClient]):
    __doc__ = RedisPyLockBase.__doc__

    _awaited = False

    def _enter(self, block: Block[TokenHold]) -> Lock:
        has_exit, hold, call = block.begin(), None, BlockCall(self)
        try:
            if self._has_own("acquire"):
                taken = call.run(self.acquire)
                hold = call.held
            else:
                request = self._acquire_request(None, None, None, None)
                hold = TokenHold(request.claim, self._running(), in_block=has_exit)
                taken = self._acquire(hold, request)
            if taken:
                self._open(hold, block, has_exit)
                return self
            raise self._busy_error()
        except BaseException:
            self._abandon(hold or call.held)
            raise

    def _leave(
        self,
        reference: BlockRef[Block[TokenHold]],
        kind: object,
        error: object,
        trace: object,
        hold: TokenHold | None = None,
        call: BlockCall | None = None,
    ) -> None:
        # The last two are never passed: as parameters they are set before any interruption.
        try:
            block = owned(reference)
            block.begin()
            hold = self._hold_of(block)
            if self._has_own("release"):
                call = BlockCall(self, hold, is_release=True, owner=self._running())
                call.run(self.release)
            else:
                self._release(hold)
        except BaseException as failure:
            is_interrupted = isinstance(failure, EXHAUSTED) or not is_outcome(failure)
            hold = hold or self._own_hold_of(owned(reference))
            if self._is_to_abandon(owned(reference), call, is_interrupted):
                self._abandon(hold)
            if call is not None:
                self._abandon(call.acquired_instead)
            if is_interrupted:
                raise
            if not self._is_suppressed(failure, kind is not None):
                raise
        finally:
            self._close(owned(reference))

    def _abandon_block(self, block: Block[TokenHold]) -> None:
        """Release what a block holds whose exit was interrupted."""
        try:
            self._abandon(self._own_hold_of(block))
        finally:
            self._close(block)

    if TYPE_CHECKING:

        def __enter__(self) -> Lock: ...

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __enter__ = EnterMethod(_enter)
        __exit__ = ExitMethod(_leave, _abandon_block)

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        *,
        sleep: float | None = None,
    ) -> bool:
        """Acquire the lock; return False if it was not free in time.

        Args:
            blocking: False tries once. None, here and below, means the lock's own setting.
            blocking_timeout: the longest wait, in seconds.
            token: the value to store in the key, unique to this acquisition; None generates one.
            sleep: the average pause between two tries, in seconds.

        Raises:
            ConfigurationError: an argument is invalid.
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        request = self._acquire_request(blocking, blocking_timeout, token, sleep)
        return self._acquire(TokenHold(request.claim, self._running()), request, is_call=True)

    def _acquire(self, hold: TokenHold, request: AcquireRequest, is_call: bool = False) -> bool:
        token_slot, port = self.local._slot(), self._port()
        if self.auto_renew:
            port.lease_loop.check(request.claim)
        elif request.wait > 0:
            refuse_half_patched(request.claim)
        try:
            taken = run(flow.acquire(port, request))
            if taken:
                token_slot.put(self._start_renewal(hold, port))
                if is_call:
                    hold.is_free = not note_acquired(self, hold, hold.by)
                if self.auto_renew:
                    port.lease_loop.refuse_unrenewed(request.claim)
            return taken
        except BaseException:
            self._abandon(hold)
            raise

    def release(self) -> None:
        """Release the lock; after a connection error it can be called again.

        Raises:
            LockNotOwnedError: another client holds it, or its timeout ran out.
            LockError: it is not locked.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        release_completely(self._to_release, self._release, self._abandon, is_outcome)

    def _to_release(self) -> TokenHold | None:
        return to_release(self, self._found, self._running())

    def _release(self, hold: TokenHold | None) -> None:
        if hold is None or hold.is_gone:
            run(self._refuse_unheld())
        hold.stop_renewal()
        if is_waiting_refused():  # a finalizer on the renewer's thread: waiting delays all renewals
            return releases.call(partial(self._release_and_log, hold))
        return run(self._send_release(hold))

    def _release_and_log(self, hold: TokenHold) -> None:
        """Release in the background, where no caller receives the error."""
        try:
            run(self._send_release(hold))
        except Exception as error:
            log.warning("%s", error)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add seconds to the remaining time, or with ``replace_ttl`` set it to that many seconds.

        Raises:
            LockNotOwnedError: another client holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        change = self._extension(additional_time, replace_ttl)
        return run(self._adjust(self._held_here(), change))

    def reacquire(self) -> Literal[True]:
        """Set the remaining time to the full timeout.

        Raises:
            LockNotOwnedError: another client holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        return run(self._adjust(self._held_here(), None))

    def locked(self) -> bool:
        """Ask Redis whether any client holds the lock."""
        return run(flow.is_locked(self._port(), self._key))

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock."""
        return run(flow.is_owned(self._port(), claim_of(self._held_here())))

    def _token_slots(self) -> Callable[[], TokenSlot]:
        own = _ThreadTokenSlot()
        return lambda: own.token_slot

    @staticmethod
    def _running() -> ref[threading.Thread]:
        return ref(threading.current_thread())

    def _port(self) -> BlockingPort:
        return DEFAULT.port(self.redis, None)

    def _abandon(self, hold: TokenHold | None) -> None:
        """Release what is still held, after an exception such as KeyboardInterrupt."""
        if hold is None or hold.is_gone:
            return
        try:
            hold.forget()
            if hold.claim.state is ENDED:
                return
            if is_waiting_refused():
                releases.call(partial(self._undo, hold.claim))
            else:
                self._undo(hold.claim)
        # A second exception from outside, or stack or memory do not suffice.
        except BaseException as error:
            releases.call(partial(self._undo, hold.claim))
            if not isinstance(error, EXHAUSTED):
                raise

    def _abandon_in_background(self, hold: TokenHold) -> None:
        if not hold.is_gone:
            hold.forget()
            if hold.claim.state is not ENDED:
                releases.call(partial(self._undo, hold.claim))

    def _undo(self, claim: Claim) -> None:
        run(undo(self._port(), claim))


Lock._originals = {"acquire": Lock.acquire, "release": Lock.release}


class _ThreadTokenSlot(threading.local):
    def __init__(self) -> None:
        self.token_slot = TokenSlot()

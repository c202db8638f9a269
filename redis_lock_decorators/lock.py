"""redis-py's ``Lock`` for threads: ``client.lock("x", timeout=3, lock_class=Lock)``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal
from weakref import ref

from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.acquire import undo
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.redispy_lock import AcquireRequest
from redis_lock_decorators._flow.requests import EXHAUSTED
from redis_lock_decorators._io.background.helper_threads import releases
from redis_lock_decorators._io.background.worker import is_waiting_refused
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._shared.blocks import Block, EnterMethod, ExitMethod
from redis_lock_decorators._shared.exits import BlockRef, owned
from redis_lock_decorators._shared.redispy_base import RedisPyLockBase
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot
from redis_lock_decorators._shared.settings import DEFAULT

__all__ = ["Lock"]


class Lock(RedisPyLockBase[BlockingClient]):
    __doc__ = RedisPyLockBase.__doc__

    _awaited = False

    def _enter(self, block: Block[TokenHold]) -> Lock:
        has_exit, hold = block.begin(), None
        token_slot = self.local._slot()
        before = token_slot.hold
        try:
            if self._has_own("acquire"):
                taken = self.acquire()
            else:
                request = self._acquire_request(None, None, None, None)
                hold = TokenHold(request.claim, _running(), in_block=has_exit)
                taken = self._acquire(hold, request)
            if taken:
                self._open(hold or token_slot.hold, block, has_exit)
                return self
            raise self._busy_error()
        except BaseException:
            self._abandon(hold or token_slot.put_since(before, _running()))
            raise

    def _leave(
        self,
        of: BlockRef[Block[TokenHold]],
        kind: object,
        error: object,
        trace: object,
        hold: TokenHold | None = None,
    ) -> None:
        # ``hold`` is no argument: so it is there at the first line that may be interrupted.
        try:
            block = owned(of)
            block.begin()
            hold = self._left(block)
            if self._has_own("release") and self._would_release(block, hold):
                self.release()
            else:
                self._release(hold)
        except BaseException as failure:
            if isinstance(failure, EXHAUSTED) or not is_outcome(failure):
                self._abandon(hold or self._left(owned(of)))
                raise
            if not self._is_suppressed(failure, kind is not None):
                raise
        finally:
            self._close(owned(of), hold)

    if TYPE_CHECKING:

        def __enter__(self) -> Lock: ...

        def __exit__(self, kind: object, error: object, trace: object) -> None: ...

    else:
        __enter__ = EnterMethod(_enter)
        __exit__ = ExitMethod(_leave)

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        *,
        sleep: float | None = None,
    ) -> bool:
        """Take the lock; False if it was not free in time.

        Args:
            blocking: False tries once; None is the lock's own setting, here and below.
            blocking_timeout: the longest wait in seconds.
            token: the value that proves who holds the lock; a random one if None.
            sleep: seconds between two tries, on average.

        Raises:
            redis.exceptions.ConnectionError: the server cannot be reached.
        """
        request = self._acquire_request(blocking, blocking_timeout, token, sleep)
        return self._acquire(TokenHold(request.claim, _running()), request)

    def _acquire(self, hold: TokenHold, request: AcquireRequest) -> bool:
        token_slot = self.local._slot()
        try:
            taken = run(flow.acquire(self._port(), request))
            if taken:
                token_slot.put(self._start_renewal(hold, self._port()))
            return taken
        except BaseException:
            self._abandon(hold)
            raise

    def release(self) -> None:
        """Let the lock go; it can be called again after a broken connection.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        self._release(self.local._slot().hold)

    def _release(self, hold: TokenHold | None) -> None:
        found = self._held(hold)
        found.release_keys()
        if is_waiting_refused():  # a finalizer: all locks that are renewed would wait for this one
            return releases.call(lambda: self._release_and_log(found))
        return self._send_release(found)

    def _send_release(self, hold: TokenHold) -> None:
        try:
            run(flow.release(self._port(), hold.claim))
        finally:
            if hold.claim.state is ENDED:
                hold.forget()

    def _release_and_log(self, hold: TokenHold) -> None:
        """Let go where nobody can be told what comes of it."""
        try:
            self._send_release(hold)
        except Exception as error:
            log.warning("%s", error)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add seconds to what the lock has left, or let it have so many from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        change = self._extension(additional_time, replace_ttl)
        hold = self._held(self.local._slot().hold)
        self._refuse_endless()
        return self._adjust(hold, change)

    def reacquire(self) -> Literal[True]:
        """Let the lock have its timeout again, from now.

        Raises:
            LockNotOwnedError: another holds it, or its timeout ran out.
            LockError: it is not locked, or has no timeout.
            redis.exceptions.ConnectionError: the outcome is unknown.
        """
        hold = self._held(self.local._slot().hold)
        change = self._extension(self._refuse_endless(), replace_ttl=True)
        return self._adjust(hold, change)

    def locked(self) -> bool:
        """Ask Redis whether anybody holds the lock."""
        return run(flow.is_locked(self._port(), self._key))

    def owned(self) -> bool:
        """Ask Redis whether this thread holds the lock."""
        return run(flow.is_owned(self._port(), self.local._slot().claim))

    def _adjust(self, hold: TokenHold, change: Callable[[float], float]) -> Literal[True]:
        try:
            run(flow.adjust(self._port(), hold.claim, change))
        finally:
            hold.keep()
        return True

    def _left(self, block: Block[TokenHold]) -> TokenHold | None:
        """What is held by the block that is left; by hand, what this thread would release."""
        entered, hold = block.held, self.local._slot().hold
        if entered is None:
            return hold
        if entered.is_gone and hold is not None and hold.is_again(entered):
            return hold  # it was let go in the block, and acquired again
        return entered

    def _token_slots(self) -> Callable[[], TokenSlot]:
        own = _ThreadTokenSlot()
        return lambda: own.token_slot

    def _port(self) -> BlockingPort:
        return DEFAULT.port(self.redis, None)

    def _held(self, hold: TokenHold | None) -> TokenHold:
        """What to release or extend."""
        if hold is None or hold.is_gone:
            run(flow.refuse_unheld(self._port(), self._lock_name, self._key))
        return hold

    def _abandon(self, hold: TokenHold | None) -> None:
        """Let go what was acquired, if it is held, after an exception from outside: a Ctrl-C."""
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
        except EXHAUSTED:
            releases.call(partial(self._undo, hold.claim))

    def _abandon_in_background(self, hold: TokenHold) -> None:
        if not hold.is_gone:
            hold.forget()
            if hold.claim.state is not ENDED:
                releases.call(partial(self._undo, hold.claim))

    def _undo(self, claim: Claim) -> None:
        run(undo(self._port(), claim))


def _running() -> ref[threading.Thread]:
    return ref(threading.current_thread())


class _ThreadTokenSlot(threading.local):
    """Each thread's cell."""

    def __init__(self) -> None:
        self.token_slot = TokenSlot()

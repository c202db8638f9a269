"""The base of both ``Lock`` classes, which replace redis-py's ``Lock``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar
from weakref import ref

from redis_lock_decorators._flow import redispy_lock as flow
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.redispy_lock import PROVISIONAL, AcquireRequest
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_checks import refuse_early
from redis_lock_decorators._rules.options import checked_switch
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators._shared import redispy_args as args
from redis_lock_decorators._shared.block_calls import BlockCall, has_own, held_here
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.exits import BlockRef, has_begun
from redis_lock_decorators._shared.redispy_tokens import Local, RenewalHandle, TokenHold, TokenSlot
from redis_lock_decorators.errors import ConfigurationError, LockError, shown

#: The kind of client.
C = TypeVar("C")
#: Methods of redis-py's ``Lock`` that send one request each, and those that use them there.
_STEPS = {
    "do_acquire": "acquire",
    "do_release": "release",
    "do_extend": "extend",
    "do_reacquire": "reacquire",
}


class RedisPyLockBase(Generic[C]):
    """A lock with the interface of redis-py's ``Lock``, for ``client.lock(…, lock_class=…)``.

    Args:
        redis: the client.
        name: the Redis key, without a prefix.
        timeout: the time to live of the lock, in seconds; None means that it does not expire.
        sleep: the average pause between two tries, in seconds.
        blocking: whether ``acquire`` waits.
        blocking_timeout: the longest wait, in seconds; None waits indefinitely.
        thread_local: whether each thread or task has a separate token. A task that has not acquired
            the lock uses the token of the only task that holds it, so a task may release what
            another one acquired, as with redis-py.
        raise_on_release_error: whether leaving a block raises an error if the lock was lost.
        auto_renew: renew the lock until it is released or its process ends. Without a timeout the
            lock then gets a short one, renewed every few seconds, instead of none.

    Raises:
        ConfigurationError, LockNameError: an argument is invalid.
    """

    #: Whether the client is an asyncio client.
    _awaited: ClassVar[bool]
    #: The methods that a block calls only if they were replaced.
    _originals: ClassVar[dict[str, object]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method, called in _STEPS.items():
            if hasattr(cls, method):
                raise ConfigurationError(
                    f"{cls.__qualname__}.{method} would never be called: override {called} instead"
                )

    def __init__(
        self,
        redis: C,
        name: str | bytes | memoryview,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        auto_renew: bool = False,
    ) -> None:
        refuse_early(redis, self._awaited)
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = bool(raise_on_release_error)
        self.auto_renew = checked_switch("auto_renew", auto_renew)
        self._key = args.key_of(redis, name)
        self._lock_name = self._key.decode(errors="surrogateescape")
        token_slots = self._token_slots() if self.thread_local else TokenSlot.shared()
        self.local = Local(token_slots, partial(_claim_of, self._key))
        self._acquire_request(None, None, None, None)  # checks the arguments

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown(self._lock_name)}, timeout={self.timeout}>"

    def __copy__(self) -> RedisPyLockBase[Any]:
        """Return a lock that shares the tokens, as redis-py's does."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> str:
        """Refuse to be pickled.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"cannot pickle {self!r}: its client and its token belong to this process; create a "
            "Lock with the same name there, and set its local.token to release what is held here"
        )

    def _has_own(self, method: str) -> bool:
        """Whether a subclass or an instrumentation library has replaced the method."""
        return has_own(self, method, self._originals)

    def _start_renewal(self, hold: TokenHold, port: AsyncioPort | BlockingPort) -> TokenHold:
        """Return the hold, renewed from now on with ``auto_renew``."""
        if self.auto_renew:
            hold.renewal_handle = RenewalHandle(hold.claim, port)
        return hold

    def _open(self, hold: TokenHold | None, block: Block[TokenHold], has_exit: bool) -> None:
        """Make the block the owner of the hold, if the block has an exit of its own.

        A subclass may enter a block without a hold.
        """
        if block.held is not None or not has_exit:  # the same bound methods are called repeatedly
            self._share(block)
            return
        hold = hold or self._no_hold()
        block.held = hold
        if block.call is not None and (reference := block.call()) is not None:
            reference.held = hold
        block.ownership = hold.hand_ownership()
        hold.in_block = True
        hold._block = ref(block, partial(self._on_block_gone, hold, block.call))
        if block.is_shared:
            self._share(block)

    def _no_hold(self) -> TokenHold:
        """What a block enters whose subclass has acquired nothing for it."""
        nothing = TokenHold(claim_on(self._key, PROVISIONAL), self._running())
        nothing.is_empty = nothing.is_gone = True
        return nothing

    def _share(self, block: Block[TokenHold]) -> None:
        """Separate a block of this lock from its hold, as its methods are used for several."""
        self._close(block)

    def _on_block_gone(self, hold: TokenHold, call: ref[BlockRef[Any]] | None, _: object) -> None:
        """Release if the block's exit was interrupted before its first line.

        If the block was deleted without its exit, its hold is no longer renewed: it has no owner.
        """
        hold._block = None
        if has_begun(call):
            self._abandon_in_background(self._replacement(hold) or hold)

    def _abandon_in_background(self, hold: TokenHold) -> None:
        """Release the hold on another thread, or in another task."""
        raise NotImplementedError

    def _close(self, block: Block[TokenHold]) -> None:
        """Separate the block from its hold."""
        held, ownership = block.held, block.ownership
        if held is not None:
            held._block = None
            held.take_ownership(ownership)
            held.is_free = True
        block.disown()

    def _found(self, by_hand: bool = False) -> TokenHold | None:
        """The hold that ``release`` releases here, or ``__exit__`` if it is called by hand."""
        return self.local._slot().hold

    @staticmethod
    def _running() -> object:
        """A weak reference to the running thread or task."""
        raise NotImplementedError

    def _held_here(self) -> TokenHold | None:
        """The hold that ``extend``, ``owned`` and the like are about."""
        return held_here(self, lambda: self.local._slot().hold, self._running())

    def _hold_of(self, block: Block[TokenHold]) -> TokenHold | None:
        """The hold that leaving the block releases."""
        entered = block.held
        if entered is None:
            return self._found(by_hand=True)
        if entered.is_empty:
            return self._adopted(entered)
        return self._own_hold_of(block)

    @staticmethod
    def _is_to_abandon(
        block: Block[TokenHold], call: BlockCall | None, is_interrupted: bool
    ) -> bool:
        """Whether to release, after a failed exit, the hold that it was to release.

        Not if a subclass failed before that began, and the block itself has acquired nothing.
        """
        if call is None or call.is_begun:
            return is_interrupted
        return not (block.held is not None and block.held.is_empty)

    def _own_hold_of(self, block: Block[TokenHold]) -> TokenHold | None:
        """What the block has acquired, or what replaces that; None if it has acquired nothing."""
        entered = block.held
        if entered is None or entered.is_empty:
            return None
        return self._replacement(entered) or entered

    def _replacement(self, entered: TokenHold) -> TokenHold | None:
        """What was acquired in a block after it has released what it entered."""
        hold = self.local._slot().hold if entered.is_gone else None
        return hold if hold is not None and hold.replaces(entered) else None

    def _adopted(self, entered: TokenHold) -> TokenHold:
        """The hold that is released by a block that has acquired nothing; ``entered`` for none.

        It is what was acquired last, if no block has that: the thread or task may have acquired it
        before or in the block, or another block may have left it to the last one. The ``release``
        of a subclass may count the blocks, and release what an outer one has.
        """
        last = self._found(by_hand=True)
        if last is None:
            return entered
        is_outer = self._has_own("release") and last.by == entered.by
        return last if is_outer or last.is_free else entered

    async def _send_release(self, hold: TokenHold) -> None:
        claim = hold.claim  # a local variable, as ``BlockingPort.interrupted`` reads it
        try:
            await flow.release(self._port(), claim)
        finally:
            if claim.state is ENDED:
                hold.forget()

    async def _adjust(
        self, hold: TokenHold | None, change: Callable[[float], float] | None
    ) -> Literal[True]:
        """Change the expiry: from the seconds left to those wanted; None sets the timeout."""
        if hold is None or hold.is_gone:
            await self._refuse_unheld()
        timeout = self._refuse_endless()
        change = change or self._extension(timeout, replace_ttl=True)
        try:
            await adjust(self._port(), hold.claim, change)
        finally:
            hold.reschedule_renewal()
        return True

    async def _refuse_unheld(self) -> NoReturn:
        await flow.refuse_unheld(self._port(), self._lock_name, self._key)

    def _port(self) -> AsyncioPort | BlockingPort:
        raise NotImplementedError

    def _token_slots(self) -> Callable[[], TokenSlot]:
        """Return a function that finds the slot of the running thread or task."""
        raise NotImplementedError

    def _acquire_request(
        self,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: str | bytes | None,
        sleep: float | None,
    ) -> AcquireRequest:
        """Return the request of an ``acquire`` call; None means the lock's own setting."""
        blocks = args.checked_blocking(self.blocking if blocking is None else blocking)
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        longest = math.inf if wait is None else args.checked_seconds("blocking_timeout", wait)
        endless = self.timeout is None and not self.auto_renew
        seconds = PROVISIONAL if self.timeout is None else args.checked_timeout(self.timeout)
        claim = claim_on(self._key, seconds)
        claim.shares_identifier = token is not None
        return AcquireRequest(
            claim=claim,
            wait=longest if blocks else 0.0,
            sleep=args.checked_sleep(self.sleep if sleep is None else sleep) if blocks else 1.0,
            token=None if token is None else args.checked_token(token),
            endless=endless,
            renews=self.auto_renew,
        )

    def _extension(self, additional_time: float, replace_ttl: bool) -> Callable[[float], float]:
        """Return a function from the remaining seconds to the wanted ones."""
        seconds = args.checked_timeout(additional_time, "additional_time")
        return lambda left: seconds if replace_ttl else left + seconds

    def _refuse_endless(self) -> float:
        if self.timeout is None:
            raise LockError(
                f"lock {shown(self._lock_name)} has no timeout, so it cannot be extended: give it "
                "one (timeout=…)",
                self._lock_name,
            )
        return self.timeout

    def _busy_error(self) -> LockError:
        """The error of a block that could not be entered."""
        longest = self.blocking_timeout
        if self.blocking and longest is None:  # a subclass does not wait, or refuses
            why = f"was not acquired, as {type(self).__name__}.acquire returned False"
        else:
            tried = f"within {longest} s" if self.blocking else "when tried once"
            why = f"was not free {tried}: wait longer (blocking_timeout=…)"
        return LockError(f"lock {shown(self._lock_name)} {why}", self._lock_name)

    def _is_suppressed(self, error: BaseException, failed: bool) -> bool:
        """Log a release's error instead of raising it, if the body failed or the lock says so."""
        if failed or (isinstance(error, LockError) and not self.raise_on_release_error):
            log.warning(
                "lock %s was not released on leaving its block: %s",
                *(shown(self._lock_name), described(error)),
            )
            return True
        return False


def _claim_of(key: bytes, token: str) -> Claim:
    """A claim that is held by a token from elsewhere."""
    claim = claim_on(key, PROVISIONAL, token)
    claim.shares_identifier = True
    return claim

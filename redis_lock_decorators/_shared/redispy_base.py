"""What the blocking and the asyncio stand-in for redis-py's ``Lock`` have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar
from weakref import ref

import six

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.redispy_lock import PROVISIONAL, AcquireRequest
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_checks import refuse_at_door
from redis_lock_decorators._io.client_state import as_sent
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.keys import checked_key
from redis_lock_decorators._rules.options import checked_switch
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.exits import BlockRef, has_begun
from redis_lock_decorators._shared.redispy_tokens import RenewalHandle, TokenHold, TokenSlot
from redis_lock_decorators.errors import ConfigurationError, LockError, LockNameError, shown

#: The kind of client.
C = TypeVar("C")


class Local:
    """The token that proves that a lock is held, as ``lock.local.token``.

    It may be set, to release or extend a lock that was acquired elsewhere.
    """

    def __init__(
        self, token_slot: Callable[[], TokenSlot], claim_of: Callable[[str], Claim]
    ) -> None:
        self._slot = token_slot
        #: The one to put a token into.
        self._own_slot: Callable[[], TokenSlot] = getattr(token_slot, "own", token_slot)
        self._claim_of = claim_of

    @property
    def token(self) -> bytes | None:
        """The token of this thread or task (of all, with ``thread_local=False``)."""
        claim = self._slot().claim
        if claim is None or not claim.is_of_this_process():
            return None
        return claim.identifier.encode()

    @token.setter
    def token(self, token: str | bytes | None) -> None:
        hold = None if token is None else TokenHold(self._claim_of(checked_token(token)))
        self._own_slot().put(hold)


class RedisPyLockBase(Generic[C]):
    """A lock with the words of redis-py's ``Lock``, for ``client.lock(…, lock_class=…)``.

    Args:
        redis: the client.
        name: the Redis key, as it is.
        timeout: seconds after which the lock frees itself; None for never.
        sleep: seconds between two tries, on average.
        blocking: whether ``acquire`` waits.
        blocking_timeout: the longest wait in seconds; None waits for ever.
        thread_local: whether each thread or task has a token of its own. A task that never acquired
            the lock itself uses that of the only task that holds it, so a lock may be let go by
            another task than acquired it, as redis-py's.
        raise_on_release_error: whether leaving a block raises if the lock was lost meanwhile.
        auto_renew: renew the lock until it is released or its holder dies. Without a timeout it
            is then renewed every few seconds instead of having no end.

    Raises:
        ConfigurationError, LockNameError: an argument is not usable.
    """

    #: Whether its clients are asyncio's.
    _awaited: ClassVar[bool]

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
        refuse_at_door(redis, self._awaited)
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = bool(raise_on_release_error)
        self.auto_renew = checked_switch("auto_renew", auto_renew)
        self._key = key_of(redis, name)
        self._lock_name = self._key.decode(errors="surrogateescape")
        claim_of = partial(claim_on, self._key, PROVISIONAL)
        self.local = Local(
            self._token_slots() if self.thread_local else shared_token_slot(), claim_of
        )
        self._acquire_request(None, None, None, None)  # refuses what acquire would

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown(self._lock_name)}, timeout={self.timeout}>"

    def __copy__(self) -> RedisPyLockBase[Any]:
        """Another one with the same tokens, as of redis-py's own."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> str:
        """Refuse to be pickled.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"cannot pickle {self!r}, as its client and its token belong to their process: make "
            "one there by the same name, with lock.local.token if it is to let go what is held here"
        )

    def _has_own(self, method: str) -> bool:
        """Whether a subclass, or somebody who wraps it, has another method in place of ours."""
        module = getattr(getattr(type(self), method), "__module__", "")
        return method in vars(self) or not module.startswith("redis_lock_decorators.")

    def _would_release(self, block: Block[TokenHold], hold: TokenHold | None) -> bool:
        """Whether ``release`` would let go what is left, or nothing where that is over.

        It knows of no block, and lets go what the lock object has found last: with one token for
        all, what another has acquired meanwhile.
        """
        found = self.local._slot().hold
        if found is None:
            return block.held is None or block.held.is_gone
        return hold is None or found is hold

    def _start_renewal(self, hold: TokenHold, port: AsyncioPort | BlockingPort) -> TokenHold:
        """The same, renewed from now on if that is wanted."""
        if self.auto_renew:
            hold.renewal_handle = RenewalHandle(hold.claim, port)
        return hold

    def _open(self, hold: TokenHold | None, block: Block[TokenHold], has_exit: bool) -> None:
        """Let the block's own exit, if it has one, release what it has entered."""
        if block.held is not None or not has_exit:  # its methods are used again and again
            self._close(block, block.held)
        elif hold is not None:
            block.held = hold
            hold.in_block = True
            hold._block = ref(block, partial(self._on_block_gone, hold, block.call))

    def _on_block_gone(self, hold: TokenHold, call: ref[BlockRef[Any]] | None, _: object) -> None:
        """Know that a block is gone, and was not left; let go if that was cut short."""
        hold._on_block_gone()
        if has_begun(call):
            self._abandon_in_background(hold)

    def _abandon_in_background(self, hold: TokenHold) -> None:
        """Let go what is held, on another thread."""
        raise NotImplementedError

    def _close(self, block: Block[TokenHold], hold: TokenHold | None) -> None:
        """Know that the block is left."""
        if hold is not None:
            hold._block = None
        block.held = None

    def _token_slots(self) -> Callable[[], TokenSlot]:
        """What finds the cell of the running thread or task."""
        raise NotImplementedError

    def _acquire_request(
        self,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: str | bytes | None,
        sleep: float | None,
    ) -> AcquireRequest:
        """What an ``acquire`` with these arguments asks for; None is the lock's own setting."""
        blocks = checked_blocking(self.blocking if blocking is None else blocking)
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        longest = math.inf if wait is None else checked_seconds("blocking_timeout", wait)
        endless = self.timeout is None and not self.auto_renew
        seconds = PROVISIONAL if self.timeout is None else checked_timeout(self.timeout)
        return AcquireRequest(
            claim=claim_on(self._key, seconds),
            wait=longest if blocks else 0.0,
            sleep=checked_sleep(self.sleep if sleep is None else sleep) if blocks else 1.0,
            token=None if token is None else checked_token(token),
            endless=endless,
        )

    def _extension(self, additional_time: float, replace_ttl: bool) -> Callable[[float], float]:
        """From the seconds left to those wanted."""
        seconds = checked_timeout(additional_time, "additional_time")
        return lambda left: seconds if replace_ttl else left + seconds

    def _refuse_endless(self) -> float:
        if self.timeout is None:
            raise LockError(
                f"lock {shown(self._lock_name)} has no timeout, so there is nothing to extend",
                self._lock_name,
            )
        return self.timeout

    def _busy_error(self) -> LockError:
        """The error of a block that was not entered."""
        tried = f"within {self.blocking_timeout} s" if self.blocking else "at the one try"
        return LockError(f"lock {shown(self._lock_name)} was not free {tried}", self._lock_name)

    def _is_suppressed(self, error: BaseException, failed: bool) -> bool:
        """Whether a release's error is only logged: the body failed, or the lock is told so."""
        if failed or (isinstance(error, LockError) and not self.raise_on_release_error):
            log.warning(
                "lock %s was not released on leaving its block: %s: %s",
                *(shown(self._lock_name), type(error).__name__, error),
            )
            return True
        return False


def shared_token_slot() -> Callable[[], TokenSlot]:
    """One cell for everybody."""
    token_slot = TokenSlot()
    return lambda: token_slot


def key_of(client: Any, name: object) -> bytes:
    """The Redis key of a name, as the client itself would send it."""
    key = b""
    if isinstance(name, (bytes, bytearray, memoryview)):
        key = bytes(name)
    elif isinstance(name, (int, float)) and not isinstance(name, bool):
        key = repr(name).encode()
    elif isinstance(name, str):
        try:
            key = as_sent(client, name)
        except UnicodeEncodeError:
            raise LockNameError(f"the name {name!a:.80} cannot be written") from None
    if not key:
        raise LockNameError(f"a lock's name is text and not empty, not {name!r:.80}")
    return checked_key(key)


def checked_token(token: object) -> str:
    """A token as text: str, or bytes of UTF-8."""
    try:
        if token and isinstance(token, (str, bytes)):
            return str(six.ensure_str(six.ensure_binary(token)))
    except UnicodeError:
        pass
    raise ConfigurationError(f"token={token!r:.40}: give text, or bytes that are UTF-8")


def checked_blocking(blocking: object) -> bool:
    """True or False; a number here is the place of another argument."""
    if not isinstance(blocking, bool):
        raise ConfigurationError(
            f"blocking={blocking!r}: give True or False (a pause between tries by name: sleep=…)"
        )
    return blocking


def checked_timeout(seconds: object, word: str = "timeout") -> float:
    """More than 0 and at most what a lease may last."""
    number = _number(word, seconds)
    if not 0 < number <= durations.LONGEST_EXPIRE:
        raise ConfigurationError(
            f"{word}={seconds!r}: give more than 0 and at most {durations.LONGEST_EXPIRE:.0f} s"
        )
    return number


def checked_sleep(seconds: object) -> float:
    """More than 0 seconds, at most an hour."""
    number = _number("sleep", seconds)
    if not 0 < number <= 3600:
        raise ConfigurationError(f"sleep={seconds!r}: give more than 0 and at most 3600 s")
    return number


def checked_seconds(word: str, seconds: object) -> float:
    """A number of seconds, 0 or more."""
    number = _number(word, seconds)
    if not number >= 0:
        raise ConfigurationError(f"{word}={seconds!r:.80}: give 0 s or more")
    return number


def _number(word: str, seconds: object) -> float:
    """A number, which may be infinite or none."""
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        if abs(seconds) > 1e300:
            return math.copysign(math.inf, seconds)
        return float(seconds)
    raise ConfigurationError(f"{word}={seconds!r:.80}: give a number of seconds")

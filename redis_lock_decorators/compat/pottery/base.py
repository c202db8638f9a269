"""The base of ``Redlock`` and ``AIORedlock``."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from redis_lock_decorators import ConfigurationError, LockNameError
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.client_errors import is_outcome
from redis_lock_decorators._rules.keys import LONGEST_NAME, is_unchanged
from redis_lock_decorators._shared.block_calls import held_here, note_acquired, to_release
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.exits import has_begun
from redis_lock_decorators.compat.open_blocks import Call, OpenBlock, OpenBlocks
from redis_lock_decorators.compat.pottery.errors import (
    ExtendUnlockedLock,
    PrimitiveError,
    QuorumIsImpossible,
    TooManyExtensions,
)

PREFIX = "redlock:"
#: Options that ``configure`` must not change for these locks.
_PLAIN = {"prefix": PREFIX, "auto_renew": False, "min_hold": None, "max_hold": None}
log = logging.getLogger("redis_lock_decorators")

#: The kind of lease.
L = TypeVar("L")


class RedlockBase(Generic[L]):
    """A lock with the arguments, methods, keys and errors of pottery's, on one master.

    Args:
        key: the name; the Redis key is ``redlock:<key>``.
        masters: one client in a collection; without one, the client is that of the configuration.
        raise_on_redis_errors: raise ``QuorumIsImpossible`` if the server fails.
        auto_release_time: after how many seconds the lock expires.
        num_extensions: how often an acquisition can be extended.
        context_manager_blocking: whether a block waits for the lock.
        context_manager_timeout: the longest wait of a block, in seconds; -1 for no limit.

    Raises:
        ConfigurationError: there are several masters, or an argument is invalid.
    """

    def __init__(
        self,
        *,
        key: str,
        masters: Iterable[Any] = frozenset(),
        raise_on_redis_errors: bool = False,
        auto_release_time: float = 10,
        num_extensions: int = 3,
        context_manager_blocking: bool = True,
        context_manager_timeout: float = -1,
    ) -> None:
        if hasattr(masters, "execute_command"):  # iterating over a client would ask its server
            raise ConfigurationError("masters=… is a client: give a set, masters={client}")
        if isinstance(key, str) and not is_unchanged(key):
            raise LockNameError(
                f"key={key!a:.80}: pottery's Redis key would be another one: give text in Unicode "
                f"NFC, of at most {LONGEST_NAME} bytes"
            )
        self._name, self.masters = key, frozenset(masters)
        if len(self.masters) > 1:  # a set has no order: each process would choose another one
            raise ConfigurationError(
                f"masters=… has {len(self.masters)} clients: give one, the same in every process"
            )
        self.raise_on_redis_errors = raise_on_redis_errors
        self.auto_release_time = auto_release_time
        self.num_extensions = num_extensions
        self.context_manager_blocking = context_manager_blocking
        self.context_manager_timeout = context_manager_timeout
        # Threads may share this object: a release forgets its own lease, not that of the next.
        self._held: list[L] = []
        # So may their blocks: each releases its own lease.
        self._blocks: OpenBlocks[L] = OpenBlocks(_on_block_gone, _is_over)
        self._extensions = 0
        # Only to check the arguments:
        longest_wait(context_manager_blocking, context_manager_timeout)
        self._lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} key={self.key}>"

    @property
    def key(self) -> str:
        """The Redis key."""
        return PREFIX + self._name

    def _lock(self) -> Any:
        """Return the lock to acquire."""
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        client = next(iter(self.masters), None)
        return {**_PLAIN, "client": client, "expire": self.auto_release_time}

    def _owner(self) -> object:
        """Return the running thread or task."""
        raise NotImplementedError

    def _start(self, lease: L | None) -> None:
        if lease is not None:
            self._held[:], self._extensions = [lease], 0

    def _hold(self, lease: L | None, owner: object) -> bool:
        """Note what ``acquire`` has acquired for the block that this thread or task is in."""
        if lease is not None and not note_acquired(self, OpenBlock(owner, lease), owner):
            self._blocks.note_acquired(owner, lease)
        return lease is not None

    def _last_lease(self) -> L | None:
        return next(iter(self._held), None)

    def _checked_to_extend(self, lease: L | None) -> L:
        """Return the lease to extend."""
        if self._extensions >= self.num_extensions:
            raise TooManyExtensions(self.key, self.masters)
        if lease is None:
            raise ExtendUnlockedLock(self.key, self.masters)
        return lease

    def _held_lease(self) -> L | None:
        """Return the lease of this thread's or task's block, else of the last ``acquire``.

        None if it was released.
        """
        return self._lease_of(held_here(self, self._innermost, self._owner()))

    def _lease_to_release(self) -> L | None:
        return self._lease_of(to_release(self, self._innermost, self._owner()))

    def _innermost(self) -> OpenBlock[L] | None:
        return self._blocks.innermost(self._owner())

    def _lease_of(self, block: OpenBlock[L] | None) -> L | None:
        """Return the lease of a block, not that of another which acquired the lock after it."""
        return self._last_lease() if block is None else block.hold

    def _share(self, block: Block[OpenBlock[L]]) -> None:
        self._blocks.share(block)

    def _forget(self, lease: L) -> None:
        with suppress(ValueError):
            self._held.remove(lease)
        self._blocks.forget(lease)

    def _failed(
        self, error: Exception, raises: bool | None, otherwise: type[PrimitiveError] | None = None
    ) -> None:
        """Raise what pottery raises if the server fails; without an ``otherwise``, log it."""
        if not is_outcome(error):
            raise error
        if self.raise_on_redis_errors if raises is None else raises:
            otherwise = QuorumIsImpossible
        if otherwise is not None:
            raise otherwise(self.key, self.masters, [error]) from error
        log.warning("lock %r: the server failed (%s)", self.key, type(error).__name__)


def _on_block_gone(lease: Any, call: Call) -> None:
    """Release what a block held whose exit was interrupted."""
    if has_begun(call):
        lease._leaving = call
        lease._on_block_gone(None)


def _is_over(lease: Any) -> bool:
    return lease._claim.state is ENDED


def is_result(error: BaseException) -> bool:
    """Whether an error is the result of a release, and not an exception from outside."""
    return isinstance(error, PrimitiveError) or is_outcome(error)


def longest_wait(blocking: bool, timeout: float) -> float | None:
    """Return how many seconds a call waits; None for no limit."""
    if not blocking and timeout != -1:
        raise ValueError("timeout=… has no effect with blocking=False: give one of them")
    if not blocking:
        return 0
    return None if timeout == -1 else max(0, timeout)


def pause() -> float:
    """Return the seconds between two tries while the server fails."""
    return random.uniform(0.02, 0.2)

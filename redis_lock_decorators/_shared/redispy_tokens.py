"""What is held through a stand-in for redis-py's ``Lock``, and where the lock object finds it."""

from __future__ import annotations

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.renewal.renewer import TrackedLease
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import shown


class RenewalHandle:
    """What a renewed claim hangs on: once it is gone, nobody can release the claim."""

    __slots__ = ("__weakref__", "renewer", "tracked")

    def __init__(self, claim: Claim, port: AsyncioPort | BlockingPort) -> None:
        options = Options(expire=claim.expire, auto_renew=True)
        self.tracked = TrackedLease(self, _warn, claim, port, options)
        self.renewer = port.renewer
        self.renewer.add(self.tracked)


def _warn(renewal_handle: RenewalHandle) -> None:
    claim = renewal_handle.tracked.claim
    log.warning(
        "lock %s was lost before its release: %s", shown(claim.lock_name), claim.lost_reason
    )


class TokenHold:
    """One acquisition: its claim, and what the renewal of that hangs on.

    Attributes:
        by: a weak reference to the thread or task that acquired it; None for one set by hand.
        in_block: it is acquired by a ``with`` block, which has an exit of its own to release it.
        is_gone: its cell has forgotten it. It alone is marked, in one step: whether it is still in
            its cell need not be asked, which another thread may have filled meanwhile.
    """

    __slots__ = ("__weakref__", "_block", "by", "claim", "in_block", "is_gone", "renewal_handle")

    def __init__(self, claim: Claim, by: object = None, in_block: bool = False) -> None:
        self.claim = claim
        self.by = by
        self.in_block = in_block
        self.renewal_handle: RenewalHandle | None = None
        self.is_gone = False
        # The ``with`` block that holds it: the renewal ends once that is gone.
        self._block: object = None

    def is_again(self, entered: TokenHold) -> bool:
        """Whether who let go what his block had entered has acquired it again for the block.

        What another block of his has entered, that one releases.
        """
        return self.by == entered.by and not self.in_block

    def keep(self) -> None:
        """Go on with the renewal, after the lock's end was moved, or may have been."""
        renewal_handle = self.renewal_handle  # another thread may end it at any line
        if renewal_handle is not None:
            renewal_handle.renewer.add(renewal_handle.tracked)

    def release_keys(self) -> None:
        """End the renewal: it must not outlive the lock."""
        renewal_handle = self.renewal_handle
        if renewal_handle is not None:
            renewal_handle.renewer.remove(renewal_handle.tracked)

    def forget(self) -> None:
        """Be in no cell any more."""
        self.is_gone = True
        self.renewal_handle = None

    def _on_block_gone(self) -> None:
        """End the renewal, as the block is gone and was not left."""
        self._block = None
        self.release_keys()
        self.renewal_handle = None


class TokenSlot:
    """What one thread or task holds through a lock, or what all of them share."""

    __slots__ = ("__weakref__", "_hold")

    def __init__(self) -> None:
        self._hold: TokenHold | None = None

    @property
    def hold(self) -> TokenHold | None:
        """The last acquisition, until it is forgotten."""
        hold = self._hold
        return None if hold is None or hold.is_gone else hold

    @property
    def claim(self) -> Claim | None:
        """The claim of that."""
        hold = self.hold
        return None if hold is None else hold.claim

    def put(self, hold: TokenHold | None) -> None:
        """Hold an acquisition, or none, in place of another."""
        self._hold = hold

    def put_since(self, before: TokenHold | None, by: object) -> TokenHold | None:
        """What that thread or task has put here since ``before`` was here; None if nothing."""
        hold = self.hold
        return None if hold is None or hold is before or hold.by != by else hold

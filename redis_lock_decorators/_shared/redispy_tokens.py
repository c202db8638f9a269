"""The tokens of redis-py's ``Lock``: what each thread or task holds through a lock object."""

from __future__ import annotations

from collections.abc import Callable

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.redispy_args import checked_token
from redis_lock_decorators.errors import shown


class RenewalHandle:
    """The object whose lifetime limits a renewal, unless a block owns the hold.

    Attributes:
        ownership: what shows the renewer that the hold can be released; None while a block has it.
    """

    __slots__ = ("__weakref__", "ownership", "renewer", "tracked")

    def __init__(self, claim: Claim, port: AsyncioPort | BlockingPort) -> None:
        options = Options(expire=claim.expire, auto_renew=True)
        self.tracked = TrackedLease(self, _warn, claim, port, options)
        self.ownership: object = self.tracked.ownership
        self.renewer = port.renewer
        self.renewer.add(self.tracked)


def _warn(renewal_handle: RenewalHandle) -> None:
    claim = renewal_handle.tracked.claim
    log.warning(
        "lock %s was lost before its release: %s", shown(claim.lock_name), claim.lost_reason
    )


class TokenHold:
    """One acquisition: its claim and its renewal.

    Attributes:
        by: a weak reference to the thread or task that acquired it; None for a token set by hand.
        is_empty: it stands for nothing: a subclass has entered a block without acquiring the lock.
        is_free: no block has it: it was acquired by a call of ``acquire``, or a subclass has kept
            it at the end of its block.
        in_block: it was acquired by a ``with`` block, whose exit releases it.
        port: the port of the task that acquired it; None for threads, and for a token set by hand.
        is_gone: it was removed from its slot. The mark is on the hold, set by one atomic store, as
            another thread may have put another hold into the slot.
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "by",
        "claim",
        "in_block",
        "is_empty",
        "is_free",
        "is_gone",
        "port",
        "renewal_handle",
    )

    def __init__(self, claim: Claim, by: object = None, in_block: bool = False) -> None:
        self.claim = claim
        self.by = by
        self.in_block = in_block
        self.is_empty = self.is_free = False
        self.port: AsyncioPort | None = None
        #: any thread
        self.renewal_handle: RenewalHandle | None = None
        self.is_gone = False

        # The ``with`` block that owns it: the renewal ends once the block is deleted.
        self._block: object = None

    def replaces(self, entered: TokenHold) -> bool:
        """Whether the block that entered ``entered`` released it and acquired this one instead.

        A hold that belongs to another block of the same thread or task is released by that block.
        """
        return self.by == entered.by and not self.in_block

    def reschedule_renewal(self) -> None:
        """Schedule the next renewal, after the expiry was changed, or may have been."""
        renewal_handle = self.renewal_handle  # another thread may clear the attribute
        if renewal_handle is not None:
            renewal_handle.renewer.add(renewal_handle.tracked)

    def stop_renewal(self) -> None:
        """End the renewal: it must not outlive the lock."""
        renewal_handle = self.renewal_handle
        if renewal_handle is not None:
            renewal_handle.renewer.remove(renewal_handle.tracked)

    def forget(self) -> None:
        """Remove it from its slot."""
        self.is_gone = True
        self.renewal_handle = None

    def hand_ownership(self) -> object:
        """Return what shows the renewer that the hold can be released, for a block to keep it."""
        renewal_handle = self.renewal_handle
        if renewal_handle is None:
            return None
        ownership, renewal_handle.ownership = renewal_handle.ownership, None
        return ownership

    def take_ownership(self, ownership: object) -> None:
        """Own the renewal again, after a block."""
        renewal_handle = self.renewal_handle
        if renewal_handle is not None and ownership is not None:
            renewal_handle.ownership = ownership


class TokenSlot:
    """The place of one thread's or task's hold, or of the hold that all of them share."""

    __slots__ = ("__weakref__", "_hold")

    def __init__(self) -> None:
        self._hold: TokenHold | None = None  #: any thread

    @staticmethod
    def shared() -> Callable[[], TokenSlot]:
        """Return a function that gives every thread and task the same slot."""
        token_slot = TokenSlot()
        return lambda: token_slot

    @property
    def hold(self) -> TokenHold | None:
        """The last acquisition, until it is removed."""
        hold = self._hold
        return None if hold is None or hold.is_gone else hold

    @property
    def claim(self) -> Claim | None:
        """The claim of ``hold``."""
        return claim_of(self.hold)

    def put(self, hold: TokenHold | None) -> None:
        """Replace the hold."""
        self._hold = hold

    def new_hold(self, before: TokenHold | None, by: object) -> TokenHold | None:
        """Return the hold that ``by`` has put here since ``before`` was here, or None."""
        hold = self.hold
        return None if hold is None or hold is before or hold.by != by else hold


def claim_of(hold: TokenHold | None) -> Claim | None:
    """The claim of a hold that was not removed."""
    return None if hold is None or hold.is_gone else hold.claim


class Local:
    """The holder of the token, as ``lock.local.token``.

    Set the token to release or extend a lock that was acquired elsewhere.
    """

    def __init__(
        self, token_slot: Callable[[], TokenSlot], claim_of: Callable[[str], Claim]
    ) -> None:
        self._slot = token_slot
        #: Returns the slot to put a token into.
        self._own_slot: Callable[[], TokenSlot] = getattr(token_slot, "own", token_slot)
        self._claim_of = claim_of

    @property
    def token(self) -> bytes | None:
        """The token of this thread or task; with ``thread_local=False``, of all of them."""
        claim = self._slot().claim
        if claim is None or not claim.is_of_this_process():
            return None
        return claim.identifier.encode()

    @token.setter
    def token(self, token: str | bytes | None) -> None:
        hold = None if token is None else TokenHold(self._claim_of(checked_token(token)))
        self._own_slot().put(hold)

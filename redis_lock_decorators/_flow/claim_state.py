"""The states of a claim, and the legal transitions between them."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """How far the release of a claim has come. The legal transitions::

        ACTIVE          -> RELEASING, HANDED_OFF, ENDED
        RELEASING       -> RELEASE_FAILED, ENDED
        RELEASE_FAILED  -> RELEASING, ENDED
        HANDED_OFF      -> ENDED
        ENDED           -> RELEASING, ACTIVE (acquired again)

    ENDED is followed by RELEASING if the release that ended it was interrupted, or if another
    thread releases the claim at the same instant: that release then ends it again.

    Each transition is one store of an attribute: another thread, a signal handler or a finalizer
    may run between any two lines. Whether the lease is lost is not among the states, as another
    thread finds that out while the holder releases: see ``Claim.lost_reason``.
    """

    #: It is being acquired, or held: see ``Claim.deadline``.
    ACTIVE = "active"
    #: A release has begun, and its outcome is not recorded: it may have been interrupted.
    RELEASING = "releasing"
    #: A release has failed, and ``Claim.maybe_released`` has the keys that it may have released.
    RELEASE_FAILED = "release failed"
    #: Another claim of the process holds the keys, by the identifier that this one had.
    HANDED_OFF = "handed off"
    #: It was released, its acquisition was refused, or its block reported that it is lost.
    ENDED = "ended"


# Names of the module: to look up a member of an Enum costs several times as much.
ACTIVE, RELEASING, RELEASE_FAILED = State.ACTIVE, State.RELEASING, State.RELEASE_FAILED
HANDED_OFF, ENDED = State.HANDED_OFF, State.ENDED

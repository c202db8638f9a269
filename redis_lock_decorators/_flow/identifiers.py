"""What keys hold: identifiers, which prove who holds a lock, and what ``min_hold`` leaves there."""

from __future__ import annotations

from os import urandom

#: The end of identifiers whose holders hand the lock on to its queue.
HANDS_OFF = "~"
#: The end of what stands in a key that is kept by ``min_hold``, after the identifier.
REST = ":rest"
#: The same after an identifier of ours.
RESTING = HANDS_OFF + REST


def is_resting(holder: str) -> bool:
    """Whether what a key holds says that nobody holds the lock, which is kept by ``min_hold``."""
    return holder.endswith(RESTING)


def released_by(holder: str) -> str:
    """The identifier of who holds a lock, or has released one that is kept by ``min_hold``."""
    return holder[: 1 - len(RESTING)] if is_resting(holder) else holder


def new_identifier() -> str:
    """128 random bits as text."""
    return urandom(16).hex() + HANDS_OFF

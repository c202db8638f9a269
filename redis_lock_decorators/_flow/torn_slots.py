"""Slots that are being moved: scripts over several keys of such a slot fail for some time."""

from __future__ import annotations

from redis_lock_decorators._rules.keys import slot_of

#: Seconds between two requests over several keys of a slot that is being moved.
PAUSE = 2.0


class TornSlots:
    """The slots of a cluster in which the keys of a request were last found on two nodes.

    A client of a cluster repeats such a request for up to a second before it reports that. In a
    slot that is known to be torn, one request over several keys is sent in each ``PAUSE``, to find
    out whether the move has ended; instead of all others each key gets its own request.
    """

    def __init__(self) -> None:
        self._next: dict[int, float] = {}  #: any thread

    def __bool__(self) -> bool:
        return bool(self._next)

    def note(self, key: bytes, now: float) -> None:
        """Note that the slot of a key is torn."""
        self._next[slot_of(key)] = now + PAUSE

    def is_torn(self, key: bytes, now: float) -> bool:
        """Whether the slot of a key counts as torn; if not, the caller must send its request."""
        slot = slot_of(key)
        following = self._next.get(slot)
        if following is None:
            return False
        if now >= following:
            self._next[slot] = now + PAUSE
        return now < following

    def forget(self, key: bytes) -> None:
        """Note that the keys of a request were on one node."""
        self._next.pop(slot_of(key), None)

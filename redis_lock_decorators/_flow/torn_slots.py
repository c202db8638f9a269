"""Slots that are being moved: scripts over several keys of such a slot fail for some time."""

from __future__ import annotations

import math

from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.errors import LockError

#: Seconds between two requests over several keys of a slot that is being moved.
PAUSE = 2.0
#: Scripts that are always sent. Several scripts, one for each key, cannot acquire; and if the move
#: has ended, they would leave a queue entry, or waiters that receive no message.
NO_SUBSTITUTE = ("acquire", "acquire_fenced", "cancel", "force")


class TornSlot(LockError):
    """The request was not sent: the slot of its keys was just found being moved."""

    unsent = True


class TornSlots:
    """The slots of a cluster in which the keys of a request were last found on two nodes.

    A client of a cluster repeats such a request for up to a second before it reports that. In a
    slot that is known to be torn, one request over several keys is sent in each ``PAUSE``, to find
    out whether the move has ended; instead of all others each key gets its own request.
    """

    def __init__(self) -> None:
        #: any thread
        self._next: dict[int, float] = {}
        self._released: dict[int, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._next)

    def note(self, key: bytes, now: float) -> None:
        """Note that the slot of a key is torn."""
        self._next[slot_of(key)] = now + PAUSE

    def refuse_torn(self, verb: str, key: bytes, now: float) -> None:
        """Refuse a script over several keys if their slot is torn, unless it is time to send one.

        Raises:
            TornSlot: each key needs its own script.
        """
        slot = slot_of(key)
        following = self._next.get(slot)
        if following is None or verb in NO_SUBSTITUTE:
            return
        if now < following:
            raise TornSlot("the slot of its keys is being moved")
        self._next[slot] = now + PAUSE

    def allow_one(self, key: bytes) -> None:
        """Let the next request over several keys of the slot be sent."""
        if self.has_torn(key):
            self._next[slot_of(key)] = -math.inf

    def has_torn(self, key: bytes) -> bool:
        """Whether the slot of a key is torn, as far as is known."""
        return slot_of(key) in self._next

    def add_released(self, key: bytes, keys: list[bytes]) -> bool:
        """Add keys of one slot that were released without a message to their waiters.

        False if another release notifies these waiters too; else it adds its keys to this list.
        """
        found = self._released.setdefault(slot_of(key), keys)
        if found is not keys:
            found.extend(keys)
        return found is keys

    def drop_released(self, key: bytes, keys: list[bytes]) -> None:
        """Drop a list of released keys, unless it was only added to another one."""
        if self._released.get(slot_of(key)) is keys:
            self._released.pop(slot_of(key), None)

    def forget(self, key: bytes) -> None:
        """Note that the keys of a request were on one node."""
        self._next.pop(slot_of(key), None)

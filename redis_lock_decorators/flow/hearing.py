"""Whether this process can be told at a node whose turn it is, as far as that was tried."""

from __future__ import annotations

import math

from redis_lock_decorators.flow.handshake import Unheard
from redis_lock_decorators.flow.logs import log

#: Seconds until it is tried again, at first and at most: each failure in a row doubles them.
FIRST_REST, LAST_REST = 5.0, 60.0
#: So many lines in a row must be heard by nobody: the address may have led elsewhere meanwhile.
UNHEARD_LINES = 2


class Hearing:
    """What the listeners at one node of one client found, one after the other.

    It belongs to the event loop of the listeners and refers to neither them nor the client.

    Attributes:
        deaf_until: when to try again, in monotonic seconds.
    """

    __slots__ = ("_has_warned", "_rest", "_unheard", "deaf_until")

    def __init__(self) -> None:
        self.deaf_until = -math.inf
        self._rest = FIRST_REST
        self._unheard = 0
        self._has_warned = False

    def is_deaf(self, error: Exception, channel: str, now: float) -> bool:
        """Note why a line was of no use; whether that is enough to try no other for a while."""
        if isinstance(error, Unheard):
            self._unheard += 1
            if self._unheard < UNHEARD_LINES:
                return False
        self._unheard = 0
        self.deaf_until = now + self._rest
        self._rest = min(2 * self._rest, LAST_REST)
        self.warn(error, channel)
        return True

    def works(self) -> None:
        """Note that a line is in use, and answered."""
        self._rest, self._unheard, self._has_warned = FIRST_REST, 0, False

    def warn(self, error: Exception, channel: str) -> None:
        """Tell why nothing is heard, once until it works again."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "waiters of locks look for them from time to time instead of being told: "
                "channel %s cannot be used (%s: %s)",
                *(channel, type(error).__name__, error),
            )

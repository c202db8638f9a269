"""Whether this process can be told at a node whose turn it is, as far as that was tried."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.queue.subscription_check import NotReceived

#: Seconds until it is tried again, at first and at most: each failure in a row doubles them.
FIRST_REST, LAST_REST = 5.0, 60.0
#: So many lines in a row must be heard by nobody: the address may have led elsewhere meanwhile.
UNHEARD_LINES = 2


class Reachability:
    """What the listeners at one node of one client found, one after the other.

    It belongs to the event loop of the listeners and refers to neither them nor the client.

    Attributes:
        unavailable_until: when to try again, in monotonic seconds.
    """

    __slots__ = ("_has_warned", "_is_barred", "_rest", "_unheard", "unavailable_until")

    def __init__(self) -> None:
        self.unavailable_until = -math.inf
        self._rest = FIRST_REST
        self._unheard = 0
        self._has_warned = self._is_barred = False

    def is_unavailable(self, error: Exception, channel: str, now: float) -> bool:
        """Note why a line was of no use; whether that is enough to try no other for a while."""
        if isinstance(error, NotReceived):
            self._unheard += 1
            if self._unheard < UNHEARD_LINES:
                return False
        self._become_unavailable(now)
        self.warn(error, channel)
        return True

    def bar(self, error: Exception, now: float) -> None:
        """Note that locks may not be handed on: nothing is told though the line is in order."""
        self._is_barred = True
        self._become_unavailable(now)
        self._warn(error, "locks may not be handed on")

    def tells(self) -> None:
        """Note that a lock was handed on to a waiter."""
        self._is_barred = False

    def works(self) -> None:
        """Note that a line is in use, and answered."""
        self._unheard = 0
        if not self._is_barred:  # else its answers say nothing of whether anything will be told
            self._rest, self._has_warned = FIRST_REST, False

    def warn(self, error: Exception, channel: str) -> None:
        """Tell why nothing is heard, once until it works again."""
        self._warn(error, f"channel {channel} cannot be used")

    def _become_unavailable(self, now: float) -> None:
        self._unheard = 0
        self.unavailable_until = now + self._rest
        self._rest = min(2 * self._rest, LAST_REST)

    def _warn(self, error: Exception, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "waiters of locks look for them from time to time instead of being told: "
                "%s (%s: %s)",
                *(why, type(error).__name__, error),
            )

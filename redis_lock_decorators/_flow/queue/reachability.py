"""Whether lock notifications from one server node reach this process, as far as it was tried."""

from __future__ import annotations

import math

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.queue.subscription_check import NotReceived
from redis_lock_decorators._rules.redaction import described

#: Seconds until the next try, at first and at most: each failure in a row doubles them.
UNAVAILABLE_PAUSE, LONGEST_UNAVAILABLE_PAUSE = 5.0, 60.0
#: Subscriptions in a row that receive nothing until the node counts as unavailable: the address may
#: have led to another server once.
UNRECEIVED_LIMIT = 2


class Reachability:
    """What the successive subscribers at one node of one client have found.

    It refers to neither the subscribers nor the client, so it does not keep them alive.

    Attributes:
        unavailable_until: when to try again, in monotonic seconds.
    """

    __slots__ = ("_has_warned", "_is_forbidden", "_pause", "_unreceived", "unavailable_until")

    def __init__(self) -> None:
        self.unavailable_until = -math.inf  #: written by the loop, read by any thread
        #: loop only
        self._pause = UNAVAILABLE_PAUSE
        self._unreceived = 0
        self._has_warned = self._is_forbidden = False

    def note_failure(self, error: Exception, channel: str, now: float) -> bool:
        """Note why a subscription failed; return whether to make no other one for a while."""
        if isinstance(error, NotReceived):
            self._unreceived += 1
            if self._unreceived < UNRECEIVED_LIMIT:
                return False
        self._become_unavailable(now)
        self.warn(error, channel)
        return True

    def forbid(self, error: Exception, now: float) -> None:
        """Note that this client has no permission to grant locks, so no message will arrive."""
        self._is_forbidden = True
        self._become_unavailable(now)
        self._warn(error, "no permission to grant locks")

    def note_grant(self) -> None:
        """Note that a lock was granted to a waiter: permissions have been granted."""
        self._is_forbidden = False

    def note_pong(self) -> None:
        """Note that a subscribed connection answers."""
        self._unreceived = 0
        if not self._is_forbidden:  # else an answer does not show that messages will arrive
            self._pause, self._has_warned = UNAVAILABLE_PAUSE, False

    def warn(self, error: Exception, channel: str) -> None:
        """Log why no messages arrive; once until a connection works again."""
        self._warn(error, f"channel {channel} cannot be used")

    def _become_unavailable(self, now: float) -> None:
        self._unreceived = 0
        self.unavailable_until = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_UNAVAILABLE_PAUSE)

    def _warn(self, error: Exception, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "lock notifications are unavailable; waiters fall back to polling: %s (%s)",
                *(why, described(error)),
            )

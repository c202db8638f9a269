"""What the connection of a subscriber has shown about its server."""

from __future__ import annotations

import math
from typing import Any

from redis_lock_decorators._flow.queue.recheck import REPLY_SILENCE
from redis_lock_decorators._rules import messages

#: Seconds between two PINGs. No grant is older than the last PING that was answered before it.
PING = 0.4


class Session:
    """The server's identity, and its answers to PING. Loop only; times are monotonic seconds.

    Attributes:
        has_info: the reply to INFO has arrived.
        run_id: the server process at the other end; None if it is not known.
        not_before: a lower bound on when any message that arrives from now on was published.
        round_trip: how many seconds the latest answer took; read by any thread.
    """

    __slots__ = (
        "_pinged_at",
        "_unanswered_since",
        "has_info",
        "not_before",
        "round_trip",
        "run_id",
    )

    def __init__(self) -> None:
        self.connect()
        self._pinged_at = 0.0
        self._unanswered_since: float | None = None
        self.not_before = -math.inf
        self.round_trip = 0.0

    def connect(self) -> None:
        """Start on a new connection, where the first reply is that to INFO."""
        self.run_id: bytes | None = None
        self.has_info = False

    def begin(self, now: float, round_trip: float) -> None:
        """Start to measure the answers to PING; so far ``round_trip`` is the only measurement."""
        self.not_before, self._unanswered_since = -math.inf, None
        self._pinged_at, self.round_trip = now, round_trip

    def note_info(self, message: Any) -> None:
        """Note the reply to INFO, the first one; it is an error if INFO is not permitted."""
        self.has_info = True
        self.run_id = messages.run_id(message)

    def next_ping(self) -> float:
        """When to send the next PING."""
        return self._pinged_at + PING

    def note_ping(self, now: float) -> None:
        """Note that a PING is sent; its text is ``repr(now)``."""
        self._pinged_at = now
        self._unanswered_since = self._unanswered_since or now

    def note_pong(self, text: Any, now: float) -> None:
        """Note the answer to a PING, with its text."""
        self._unanswered_since = None
        try:
            sent = float(text)
        except ValueError:
            return
        if sent <= self._pinged_at:
            self.not_before = max(self.not_before, sent)
            self.round_trip = now - sent

    def is_silent(self, now: float) -> bool:
        """Whether a PING has remained unanswered for too long: the connection is half open."""
        return self._unanswered_since is not None and now >= self._unanswered_since + REPLY_SILENCE

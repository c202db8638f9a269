"""One place in the queue of a lock, and the news that who waits there is told."""

from __future__ import annotations

import math
from enum import Enum
from typing import Protocol

from redis_lock_decorators._rules import messages


class Signal(Enum):
    """What a waiter may hear."""

    OPEN = "from now on it can be told: it may line up"
    UNAVAILABLE = "it cannot be told: it must look by itself"
    GRANTED = "the server that it listens to has handed the lock to it"
    ASK = "somebody says that the lock was handed to it: it must ask"
    FIRST = "nobody here who began before it competes for the lock any more: it may look for it"
    AGAIN = "it is not in the queue any more, or cannot be told there: it must line up again"


class QueuedWaiter:
    """One place: one identifier, one listener, one stand in the queue. Seconds are monotonic.

    Attributes:
        hint: what its identifier is called in words.
        asked: when its first request to line up left: nobody was handed the lock by its identifier
            before.
        evidence: the time that the lock was not handed over before, known with the word of it.
        queue_entry: what stands for the waiter in the queue; None until it has asked for it.
        is_queued: it is in the queue, as far as its waiter knows.
        ticket: its number there; 0 until it has one.
        session: the connection of its listener that it is told on: on another one no word of it
            is believed, for others may have heard that before and say it again.
        is_outside: it is not its time to line up yet: others who wait are told before.
        is_notified: it was told of a word that proves nothing, and has not heeded that yet.
        is_proved: it was told that it has the lock. The first word counts: others may repeat it.
        wakeup: whom the news wakes.
    """

    __slots__ = (
        "asked",
        "evidence",
        "hint",
        "identifier",
        "is_notified",
        "is_outside",
        "is_proved",
        "is_queued",
        "key",
        "queue_entry",
        "session",
        "ticket",
        "wakeup",
    )

    def __init__(self, key: bytes, identifier: str, wakeup: Waiter) -> None:
        self.key = key
        self.identifier = identifier
        self.hint = messages.hint(identifier)
        self.wakeup = wakeup
        self.asked = math.inf
        self.evidence = -math.inf
        self.queue_entry: str | None = None
        self.is_queued = self.is_outside = self.is_notified = self.is_proved = False
        self.session = -1
        self.ticket = 0


class Waiter(Protocol):
    """Carries news from the event loop of a listener to a waiter, which may be a thread."""

    def notify(self, signal: Signal) -> None:
        """Wake the waiter, or let it find the news when it comes to wait."""

    async def wait(self, seconds: float) -> Signal | None:
        """The next news; None if there is none in time."""

"""One waiter in the queue of a lock, and the news that it waits for."""

from __future__ import annotations

import math
from enum import Enum
from typing import Protocol


class News(Enum):
    """What a waiter may hear."""

    OPEN = "from now on it can be told: it may line up"
    DEAF = "it cannot be told: it must look by itself"
    TURN = "the lock was handed to it"
    AGAIN = "it is not in the queue any more: it must line up again"


class Turn:
    """What a waiter and its listener know of each other. Seconds are monotonic.

    Attributes:
        asked: when its first request to line up left: nobody was handed the lock by its identifier
            before.
        evidence: the time that the lock was not handed over before, known with the word of it.
        place: what stands for the waiter in the queue; None until it has lined up.
        ticket: its number there; 0 until it has one.
        waiter: whom the news wakes.
    """

    __slots__ = ("asked", "evidence", "identifier", "key", "place", "ticket", "waiter")

    def __init__(self, key: bytes, identifier: str, waiter: Waiter) -> None:
        self.key = key
        self.identifier = identifier
        self.waiter = waiter
        self.asked = math.inf
        self.evidence = -math.inf
        self.place: str | None = None
        self.ticket = 0


class Waiter(Protocol):
    """Carries news from the event loop of a listener to a waiter, which may be a thread."""

    def tell(self, news: News) -> None:
        """Wake the waiter, or let it find the news when it comes to wait."""

    async def wait(self, seconds: float) -> News | None:
        """The next news; None if there is none in time."""

"""How long to pause between two tries. Seconds; the randomness is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.64
LONGEST_POLL = 0.25


def waiting(delta: float, random: Callable[[], float]) -> Iterator[float]:
    """Pauses of a waiter: ``delta`` on average, spread by a half so that no herd forms."""
    while True:
        yield delta * (0.5 + random())


def growing(delta: float, random: Callable[[], float]) -> Iterator[float]:
    """Pauses of a waiter whom nobody can wake: from ``delta`` they double up to 0.25 s."""
    while True:
        yield delta * (0.5 + random())
        delta = max(delta, min(2 * delta, LONGEST_POLL))


def recovering(random: Callable[[], float]) -> Iterator[float]:
    """Pauses after failed requests: none, then doubling from 20 to 640 ms, each spread."""
    yield 0.0
    pause = FIRST_PAUSE
    while True:
        yield pause * (0.5 + random())
        pause = min(2 * pause, LONGEST_PAUSE)

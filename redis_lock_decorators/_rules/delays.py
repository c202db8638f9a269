"""The pauses between two tries, in seconds. ``random`` returns numbers in [0, 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

REPEAT_PAUSE = 0.02
LONGEST_REPEAT_PAUSE = 0.64
LONGEST_POLL = 0.25


def waiting(delta: float, random: Callable[[], float]) -> Iterator[float]:
    """Yield pauses of ``delta`` on average, with a jitter of a half, so that waiters spread out."""
    while True:
        yield delta * (0.5 + random())


def growing(delta: float, random: Callable[[], float]) -> Iterator[float]:
    """Yield pauses that double from ``delta`` up to 0.25 s, for waiters without notifications."""
    while True:
        yield delta * (0.5 + random())
        delta = max(delta, min(2 * delta, LONGEST_POLL))


def recovering(random: Callable[[], float]) -> Iterator[float]:
    """Yield pauses after failed requests: 0, then doubling from 20 to 640 ms, with jitter."""
    yield 0.0
    pause = REPEAT_PAUSE
    while True:
        yield pause * (0.5 + random())
        pause = min(2 * pause, LONGEST_REPEAT_PAUSE)


def limited(pause: float, left: float) -> float:
    """Return the pause, or a quarter of the time ``left`` for tries, but at least 20 ms."""
    return min(pause, max(left / 4, REPEAT_PAUSE))

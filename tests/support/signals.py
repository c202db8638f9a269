"""A program whose timer calls a signal handler, once or again and again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds between two signals, and the most of them: more show a wait that never ends.
INTERVAL, MOST = 0.05, 200


@contextmanager
def periodic_signals() -> Iterator[list[int]]:
    """Call a handler that does nothing, every 0.05 s; the list has an item for each call."""
    calls: list[int] = []

    def handle(number: int, frame: object) -> None:
        calls.append(number)
        if len(calls) > MOST:
            raise AssertionError("a wait goes on as long as signals arrive")

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        yield calls
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def signal_after(seconds: float, handler: Callable[..., object]) -> Iterator[None]:
    """Call a handler once, after so many seconds, if the block still runs then."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

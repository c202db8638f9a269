"""A wake-up object of a waiter that is not woken."""

from __future__ import annotations

from redis_lock_decorators._flow.queue.waiter import Signal


class FakeWakeup:
    """Records the signals that are sent to it."""

    def __init__(self) -> None:
        self.signal: list[Signal] = []

    def notify(self, signal: Signal) -> None:
        self.signal.append(signal)

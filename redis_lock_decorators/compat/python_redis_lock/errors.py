"""The errors of python-redis-lock: as there, each is a ``RuntimeError`` and no ``LockError``."""

from __future__ import annotations


class AlreadyAcquired(RuntimeError):
    """The lock is held by this id already, so ``acquire`` would wait for itself."""


class NotAcquired(RuntimeError):
    """The lock is not held by this id; ``__cause__`` says who holds it."""


class AlreadyStarted(RuntimeError):
    """Never raised here, for code that catches it: one thread renews all locks of a process."""


class TimeoutNotUsable(RuntimeError):
    """``acquire`` was called with a timeout and ``blocking=False``."""


class InvalidTimeout(RuntimeError):
    """The timeout is negative."""


class TimeoutTooLarge(RuntimeError):
    """The timeout is longer than the expiry of a lock that is not renewed."""


class NotExpirable(RuntimeError):
    """The lock has no expiry that could be extended."""

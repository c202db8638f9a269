"""The errors of pottery's locks: as there, each is a ``RuntimeError`` and no ``LockError``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class PrimitiveError(Exception):
    """The base class of these errors.

    Attributes:
        key: the Redis key of the lock.
        masters: the clients that were given.
        redis_errors: the errors of the client. If there are any, the outcome is unknown.
    """

    _sentence = "the operation failed"

    def __init__(self, key: str, masters: Iterable[Any], redis_errors: Iterable[Any] = ()) -> None:
        super().__init__(key, masters, redis_errors)
        self.key, self.masters, self.redis_errors = key, masters, redis_errors

    def __str__(self) -> str:
        causes = "; ".join(type(error).__name__ for error in self.redis_errors)
        return f"lock {self.key!r} {self._sentence}" + (f" ({causes})" if causes else "")


class QuorumNotAchieved(PrimitiveError, RuntimeError):
    """The lock of a block was not free in time."""

    _sentence = "was not free in time"


class TooManyExtensions(PrimitiveError, RuntimeError):
    """The lock has been extended ``num_extensions`` times since its acquisition."""

    _sentence = "cannot be extended again: increase num_extensions"


class ExtendUnlockedLock(PrimitiveError, RuntimeError):
    """The lock to extend is not held by this object, or that is unknown: see ``redis_errors``."""

    _sentence = "was not extended: it is not held, or that is unknown"


class ReleaseUnlockedLock(PrimitiveError, RuntimeError):
    """The lock to release is not held by this object, or that is unknown: see ``redis_errors``."""

    _sentence = "was not released: it is not held, or that is unknown"


class QuorumIsImpossible(PrimitiveError, RuntimeError):
    """The server cannot be reached, or refused the request."""

    _sentence = "cannot be changed or read: its server failed"

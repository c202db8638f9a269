"""The locks of pottery 3 over those of this package, with one master.

``from redis_lock_decorators.compat.pottery import Redlock`` replaces
``from pottery import Redlock``. See ``docs/how-to/from-pottery.rst``.
"""

from redis_lock_decorators.compat.pottery.aioredlock import AIORedlock
from redis_lock_decorators.compat.pottery.errors import (
    ExtendUnlockedLock,
    PrimitiveError,
    QuorumIsImpossible,
    QuorumNotAchieved,
    ReleaseUnlockedLock,
    TooManyExtensions,
)
from redis_lock_decorators.compat.pottery.redlock import Redlock
from redis_lock_decorators.compat.pottery.synchronized import synchronize

__all__ = [
    "AIORedlock",
    "ExtendUnlockedLock",
    "PrimitiveError",
    "QuorumIsImpossible",
    "QuorumNotAchieved",
    "Redlock",
    "ReleaseUnlockedLock",
    "TooManyExtensions",
    "synchronize",
]

"""The interface of python-redis-lock 4 over the locks of this package.

``from redis_lock_decorators.compat import python_redis_lock as redis_lock`` replaces
``import redis_lock``. See ``docs/how-to/from-python-redis-lock.rst``.
"""

from redis_lock_decorators.compat.python_redis_lock.errors import (
    AlreadyAcquired,
    AlreadyStarted,
    InvalidTimeout,
    NotAcquired,
    NotExpirable,
    TimeoutNotUsable,
    TimeoutTooLarge,
)
from redis_lock_decorators.compat.python_redis_lock.lock import Lock
from redis_lock_decorators.compat.python_redis_lock.resets import reset_all

__all__ = [
    "AlreadyAcquired",
    "AlreadyStarted",
    "InvalidTimeout",
    "Lock",
    "NotAcquired",
    "NotExpirable",
    "TimeoutNotUsable",
    "TimeoutTooLarge",
    "reset_all",
]

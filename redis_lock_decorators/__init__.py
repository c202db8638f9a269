"""Distributed locks on Redis and Valkey: a decorator, a context manager and plain functions."""

from redis_lock_decorators.errors import (
    ConfigurationError,
    LockError,
    LockLostError,
    LockNameError,
    LockNotOwnedError,
    LockTimeoutError,
    LockUnconfirmedError,
)
from redis_lock_decorators.functions import acquire_lock, extend_lock, release_lock
from redis_lock_decorators.lease import Lease, current_lease
from redis_lock_decorators.locks import Locks, configure, force_release, redis_lock
from redis_lock_decorators.redislock import RedisLock

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "Lease",
    "LockError",
    "LockLostError",
    "LockNameError",
    "LockNotOwnedError",
    "LockTimeoutError",
    "LockUnconfirmedError",
    "Locks",
    "RedisLock",
    "__version__",
    "acquire_lock",
    "configure",
    "current_lease",
    "extend_lock",
    "force_release",
    "redis_lock",
    "release_lock",
]

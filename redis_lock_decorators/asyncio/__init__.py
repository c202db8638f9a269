"""The same locks for ``redis.asyncio`` clients: the same names and signatures, awaited."""

from redis_lock_decorators.asyncio.functions import (
    acquire_lock,
    extend_lock,
    force_release,
    release_lock,
)
from redis_lock_decorators.asyncio.lease import Lease, current_lease
from redis_lock_decorators.asyncio.redislock import RedisLock

__all__ = [
    "Lease",
    "RedisLock",
    "acquire_lock",
    "current_lease",
    "extend_lock",
    "force_release",
    "release_lock",
]

"""Caches whose ``get_or_set`` computes a missing value once, for all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.redis import RedisCache as DjangoRedisCache

from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators.redislock import RedisLock

__all__ = ["LockMixin", "RedisCache"]

_MISSING = object()


class LockMixin:
    """The base of caches with locks, before that of the cache: any of Django's or others.

    Attributes:
        lock_options: the options of the locks, as for ``RedisLock``; durations in seconds.
    """

    lock_options: ClassVar[Mapping[str, Any]] = {}

    def lock(self, key: str, version: int | None = None, **options: Any) -> RedisLock:
        """Return the lock of a key; it is a Redis lock also if the cache is not in Redis."""
        return RedisLock(self._lock_name(key, version), **{**self.lock_options, **options})

    def alock(self, key: str, version: int | None = None, **options: Any) -> AsyncRedisLock:
        """Return the lock of a key, for ``async with``."""
        return AsyncRedisLock(self._lock_name(key, version), **{**self.lock_options, **options})

    def get_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Return a value; compute one that is missing while the lock of the key is held.

        Raises:
            LockTimeoutError: another process computes it for longer than ``acquire_time``.
        """
        cache: Any = super()
        found = cache.get(key, _MISSING, version=version)
        if found is not _MISSING:
            return found
        with self.lock(key, version):
            return cache.get_or_set(key, default, timeout, version=version)

    async def aget_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Return a value; compute one that is missing while the lock of the key is held."""
        cache: Any = super()
        found = await cache.aget(key, _MISSING, version=version)
        if found is not _MISSING:
            return found
        async with self.alock(key, version):
            return await cache.aget_or_set(key, default, timeout, version=version)

    def _lock_name(self, key: str, version: int | None) -> str:
        cache: Any = self
        return f"cache:{cache.make_key(key, version=version)}"


class RedisCache(LockMixin, DjangoRedisCache):
    """Django's cache in Redis, with locks."""

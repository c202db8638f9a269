"""python-redis-lock's cache for Django, over that of django-redis, which it needs.

Give ``redis_lock_decorators.compat.python_redis_lock.django_cache.RedisCache`` as the ``BACKEND``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django_redis.cache import RedisCache as DjangoRedisCache

from redis_lock_decorators.compat import python_redis_lock
from redis_lock_decorators.compat.python_redis_lock import Lock

__all__ = ["RedisCache"]


class RedisCache(DjangoRedisCache):
    """The cache of django-redis, with locks."""

    def lock(
        self,
        key: str,
        expire: float | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
    ) -> Lock:
        """Return a lock on the server of the cache; its name does not depend on the version."""
        return Lock(self._primary(), key, expire=expire, id=id, auto_renewal=auto_renewal)

    def locked_get_or_set(
        self,
        key: str,
        value_creator: Callable[[], Any],
        version: int | None = None,
        expire: float | None = None,
        id: str | bytes | None = None,
        lock_key: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
    ) -> Any:
        """Return a value; compute one that is missing while a lock is held.

        Args:
            key, version: of the value.
            value_creator: computes the value.
            expire, id: of the lock, as for ``Lock``.
            lock_key: the name of the lock; by default ``get_or_set:<key>``.
            timeout: how long the value is kept, in seconds.

        Raises:
            ValueError: ``value_creator`` returned None.
        """
        found = self.get(key, version=version)
        if found is not None:
            return found
        with self.lock(lock_key or f"get_or_set:{key}", expire=expire, id=id):
            found = self.get(key, version=version)
            if found is not None:
                return found
            value = value_creator()
            if value is None:
                raise ValueError(f"the value_creator of key {key!r} returned None")
            self.set(key, value, timeout=timeout, version=version)
            return value

    def reset_all(self) -> None:
        """Release all locks on the server of the cache, whoever holds them."""
        python_redis_lock.reset_all(self._primary())

    def _primary(self) -> Any:
        return self.client.get_client(write=True)

"""Clients of the server of a cache."""

from __future__ import annotations

from typing import Any

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

#: What an asyncio client has in common with the blocking one whose server it uses.
_SHARED = {"host", "port", "path", "db", "username", "password", "credential_provider"}
_SHARED |= {"encoding", "encoding_errors", "socket_timeout", "socket_connect_timeout"}


def client_of_cache(alias: str) -> Any:
    """Return the client with which a cache writes.

    Raises:
        ImproperlyConfigured: the cache is not in Redis.
    """
    found: Any = caches[alias]
    of_cache: Any = getattr(found, "client", None) or getattr(found, "_cache", None)
    if not hasattr(of_cache, "get_client"):
        raise ImproperlyConfigured(f"REDIS_LOCK: the cache {alias!r} is not in Redis")
    return of_cache.get_client(write=True)


def async_client_of_url(url: str) -> Any:
    from redis.asyncio import Redis  # not in redis-py 3.5

    return Redis.from_url(url)


def async_client_of_cache(alias: str) -> Any:
    """Return an asyncio client of the server of a cache."""
    from redis import asyncio  # not in redis-py 3.5

    pool = getattr(client_of_cache(alias), "connection_pool", None)
    kind = getattr(asyncio.connection, getattr(pool, "connection_class", type(None)).__name__, None)
    if pool is None or kind is None:
        raise ImproperlyConfigured("REDIS_LOCK: give ASYNC_CLIENT for async views")
    kept = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name in _SHARED or name.startswith("ssl")
    }
    return asyncio.Redis.from_pool(asyncio.ConnectionPool(connection_class=kind, **kept))

"""python-redis-lock's cache and the one that replaces it do the same."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.core.cache import caches
from django.test import SimpleTestCase

BACKENDS = {
    "original": "redis_lock.django_cache.RedisCache",
    "replacement": "redis_lock_decorators.compat.python_redis_lock.django_cache.RedisCache",
}
settings.configure(
    CACHES={
        alias: {"BACKEND": backend, "LOCATION": os.environ["REDIS_URL"]}
        for alias, backend in BACKENDS.items()
    },
)


class Cases:
    alias: str

    def setUp(self) -> None:
        self.cache = caches[self.alias]
        self.addCleanup(self.cache.reset_all)
        self.addCleanup(self.cache.clear)

    def test_value_is_computed_once(self) -> None:
        computed = []

        def compute() -> int:
            time.sleep(0.2)
            computed.append(1)
            return len(computed)

        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda _: self.cache.locked_get_or_set("sum", compute), range(4))
            assert list(found) == [1, 1, 1, 1]
        assert self.cache.get("sum") == 1

    def test_value_is_kept_by_version_and_for_a_time(self) -> None:
        assert self.cache.locked_get_or_set("sum", lambda: 1, version=2, timeout=50) == 1

        assert self.cache.get("sum") is None
        assert 48 <= self.cache.ttl("sum", version=2) <= 50

    def test_nothing_computed_raises(self) -> None:
        with pytest.raises(ValueError):
            self.cache.locked_get_or_set("sum", lambda: None)
        assert self.cache.locked_get_or_set("sum", lambda: 1) == 1

    def test_locks_have_these_keys(self) -> None:
        client = self.cache.client.get_client()
        with self.cache.lock("sum", expire=20, id="this host", auto_renewal=True):
            assert client.get("lock:sum") == b"this host"
        seen = []

        def compute() -> int:
            seen.extend(key for key in client.keys("lock:*") if b"~:" not in key)
            return 1

        self.cache.locked_get_or_set("sum", compute)
        self.cache.delete("sum")
        self.cache.locked_get_or_set("sum", compute, lock_key="mine")
        assert seen == [b"lock:get_or_set:sum", b"lock:mine"]

    def test_all_locks_are_released(self) -> None:
        locks = [self.cache.lock("a"), self.cache.lock("b", expire=30)]
        for lock in locks:
            lock.acquire()

        self.cache.reset_all()

        assert [lock.locked() for lock in locks] == [False, False]


class Original(Cases, SimpleTestCase):
    alias = "original"


class Replacement(Cases, SimpleTestCase):
    alias = "replacement"

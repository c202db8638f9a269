"""What tests of job queues share: which jobs ran, and a lock that another run holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import redis

from redis_lock_decorators import RedisLock, configure
from redis_lock_decorators._io.environment import async_from_environment, from_environment
from redis_lock_decorators.testing import LocalServer
from support.fronts import LEGACY

MARKS = [
    pytest.mark.skipif(LEGACY, reason="the frameworks need a newer redis-py"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # connections of the frameworks
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
#: The arguments of the jobs that ran.
ran: list[str] = []


@contextlib.contextmanager
def held_by(job_id: str) -> Iterator[None]:
    """Hold the lock of the tests' jobs as a job with this identifier, in another context."""
    lease = RedisLock("shop", owner_info=lambda: {"job": job_id}).acquire()
    assert lease is not None
    try:
        yield
    finally:
        lease.release()


@contextlib.contextmanager
def used_by_default(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty a server, and have locks without a client of their own use it."""
    monkeypatch.setenv("REDIS_URL", server.url)
    server.client().flushall()
    ran.clear()
    # Other tests of this process may have made the client of another server.
    configure(get_redis_connection=lambda: redis.Redis.from_url(server.url))
    configure(get_async_redis_connection=lambda: redis.asyncio.Redis.from_url(server.url))
    yield
    configure(get_redis_connection=from_environment)
    configure(get_async_redis_connection=async_from_environment)

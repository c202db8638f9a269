"""Locks on a simulated server, whose generators a test collects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

import redis_lock_decorators._attempts
import redis_lock_decorators.asyncio._attempts
import redis_lock_decorators.asyncio.lease
import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.asyncio.redislock
import redis_lock_decorators.lease
import redis_lock_decorators.lock
from redis_lock_decorators import redislock
from redis_lock_decorators._shared.lease_base import claim_for
from support.lease_loops import ready_loop
from support.renewers import new_lease_loop, renewals

KEY = b"sys:lock:a"
BLOCKING, ASYNC = redis.Redis(), redis.asyncio.Redis()


class Scene:
    """Locks on a simulated server, whose leases are renewed in virtual time.

    Attributes:
        done: what happened, in its order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lease_loop, self.port = new_lease_loop()
        self.done: list[str] = []
        port: Any = self.port
        port.lease_loop = ready_loop()
        port.loop = SimpleNamespace(is_closed=lambda: False)
        monkeypatch.setattr(redis_lock_decorators.asyncio.lease, "is_running_here", lambda _: True)
        packages = redis_lock_decorators, redis_lock_decorators.asyncio
        for package in packages:
            lease: Any = package.lease

            def unheld(config: Any, names: Any, owner: object = None, lease: Any = lease) -> Any:
                claim = claim_for(names, config.options, owner or lease.running())
                return lease.Lease(claim, port, config.options)

            for module in (package._attempts, package.redislock):
                monkeypatch.setattr(module, "unheld", unheld)
            monkeypatch.setattr(package.lock.Lock, "_port", lambda _: port)
        losses = SimpleNamespace(call=lambda function: function())
        monkeypatch.setattr(redis_lock_decorators.lease, "loss_threads", losses)

    def lock(self, **options: Any) -> Any:
        given = {"client": BLOCKING, "expire": 10, "on_lost": self.on_lost, **options}
        return redislock.RedisLock("a", **given)

    def async_lock(self, **options: Any) -> Any:
        given = {"client": ASYNC, "expire": 10, "on_lost": self.on_lost, **options}
        return redis_lock_decorators.asyncio.redislock.RedisLock("a", **given)

    def drop_in(self, thread_local: bool) -> Any:
        kind = redis_lock_decorators.lock.Lock
        return kind(BLOCKING, KEY, 10, auto_renew=True, thread_local=thread_local)

    def async_drop_in(self, thread_local: bool) -> Any:
        kind = redis_lock_decorators.asyncio.lock.Lock
        return kind(ASYNC, KEY, 10, auto_renew=True, thread_local=thread_local)

    def on_lost(self, lease: Any, why: str) -> None:
        assert lease.lost
        assert lease.key == KEY.decode()
        self.done.append("on_lost")

    def is_held(self) -> bool:
        return self.port.server.value(KEY) is not None

    def clean_up(self) -> None:
        """Work for three times as long as a lease lasts."""
        before = len(renewals(self.port))
        self.port.clock.advance(30)
        assert len(renewals(self.port)) >= before + 6
        assert self.is_held()
        self.done.append("cleaned up")

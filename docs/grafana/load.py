"""Load that gives every panel of the dashboard something to show."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis
from prometheus_client import CollectorRegistry
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_lock_decorators import LockLostError, Locks, current_lease
from redis_lock_decorators.instrumentation.prometheus import PrometheusHook
from redis_lock_decorators.testing import LocalServer
from redis_lock_decorators.testing.ports import free_ports

#: Threads for each kind of work.
THREADS = {"order": 6, "stock": 4, "file": 2, "report": 3, "unreachable": 1}
#: Seconds between two events that disturb the locks.
DISTURBANCE = 4.0
#: Seconds of a quiet and a busy time together.
WAVE = 12.0


class Load:
    """Threads that use locks until the load is stopped."""

    def __init__(self, server: LocalServer, registry: CollectorRegistry) -> None:
        self._client = server.client()
        (unused,) = free_ports(1)
        nowhere = redis.Redis(port=unused, retry=Retry(NoBackoff(), 0))
        hooks = [PrometheusHook(registry)]
        self._locks = Locks(client=self._client, hooks=hooks)
        self._unreachable = Locks(client=nowhere, hooks=hooks)
        self._stopped = threading.Event()
        self._disturb = threading.Event()
        self._kinds = self._work()
        self._began = time.monotonic()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Each kind of work has been done once when the block begins."""
        for kind in self._kinds.values():
            kind()
        threads = [
            threading.Thread(target=self._repeat, args=(self._kinds[kind],))
            for kind, number in THREADS.items()
            for _ in range(number)
        ]
        threads.append(threading.Thread(target=self._disturbances))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def _repeat(self, work: Callable[[], Any]) -> None:
        while not self._stopped.is_set():
            work()
            busy = (time.monotonic() - self._began) % WAVE > WAVE / 2
            time.sleep(random.uniform(0, 0.1 if busy else 0.5))

    def _disturbances(self) -> None:
        """In turn a lease that is deleted, and a server that delays renewals."""
        while not self._stopped.wait(DISTURBANCE):
            self._disturb.set()
            if self._stopped.wait(DISTURBANCE):
                return
            self._client.execute_command("CLIENT", "PAUSE", 280, "WRITE")

    def _work(self) -> dict[str, Callable[[], Any]]:
        locks = self._locks

        @locks.redis_lock("order:{number}")
        def order(number: int) -> None:
            time.sleep(random.uniform(0.01, 0.03))

        @locks.redis_lock("stock:{article}", acquire_time=0.1, on_busy="skip")
        def stock(article: str) -> None:
            time.sleep(random.uniform(0.02, 0.06))

        @locks.redis_lock("file:{name}", expire=0.6)
        def file(name: str) -> None:
            time.sleep(random.uniform(0.15, 0.45))
            if self._disturb.is_set():
                self._disturb.clear()
                lease = current_lease()
                assert lease is not None  # noqa: S101 - the decorator holds one
                self._client.delete(lease.key)

        @locks.redis_lock("report", wait="cohort")
        def report() -> None:
            time.sleep(random.uniform(0.01, 0.04))

        @self._unreachable.redis_lock("order:{number}", acquire_time=0.2)
        def unreachable(number: int) -> None:
            raise AssertionError

        def lose() -> None:
            with contextlib.suppress(LockLostError):
                file("prices.csv")

        def fail() -> None:
            time.sleep(random.uniform(0, 0.6))
            with contextlib.suppress(redis.ConnectionError):
                unreachable(1)

        return {
            "order": lambda: order(random.randrange(4)),
            "stock": lambda: stock("apples"),
            "file": lose,
            "report": report,
            "unreachable": fail,
        }

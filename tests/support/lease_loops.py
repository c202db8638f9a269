"""Background loops with a simulated renewer, on each kind of worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from redis_lock_decorators._io.background import helper_threads
from redis_lock_decorators._io.background.background_loop import BackgroundLoop
from redis_lock_decorators._io.background.greenlets import GreenletWorker
from redis_lock_decorators._io.background.loop_thread import LoopThread
from redis_lock_decorators._io.background.worker import BackgroundWorker
from support.waiting import until

WORKERS = [LoopThread, GreenletWorker]


class Renewer:
    """Has ``leases``, and counts how often its wake-up was forgotten."""

    def __init__(self) -> None:
        self.leases = 0
        self.forgotten = 0
        self.ticked = threading.Event()
        self.at_tick: Callable[[], object] = lambda: None

    def __len__(self) -> int:
        return self.leases

    def forget_wake_up(self) -> None:
        self.forgotten += 1

    def tick(self) -> None:
        self.ticked.set()
        self.at_tick()


class Wanted:
    """A subscriber that has waiters."""

    def __init__(self, lease_loop: BackgroundLoop) -> None:
        self.opened = threading.Event()
        lease_loop.wanted.add(self)

    def open(self) -> None:
        self.opened.set()


class LeaseLoop(BackgroundLoop):
    """A background loop with a simulated renewer."""

    renewer: Any

    def __init__(self) -> None:
        super().__init__()
        self.renewer = Renewer()

    @property
    def worker(self) -> BackgroundWorker:
        worker = self.current_worker()
        assert worker is not None
        return worker

    def end(self) -> None:
        """End the worker, and wait for that."""
        worker, self.renewer.leases = self.current_worker(), 0
        if worker is not None:
            self.call(self.wanted.clear)
            self.call(self.stop_if_idle)
            until(lambda: worker.has_ended)


def ready_loop() -> Any:
    """A lease loop as acquisitions see it, that runs here and refuses no lease."""
    return SimpleNamespace(
        check=lambda claim: None,
        is_current=lambda: True,
        start_error="",
        refuse_unrenewed=lambda claim: None,
    )


def kill_worker(lease_loop: LeaseLoop) -> BackgroundWorker:
    """End the worker by SystemExit in a call, and return it."""
    worker = lease_loop.worker

    def die() -> None:
        raise SystemExit

    worker.call(die)
    until(lambda: worker.has_ended)
    return worker


def lease_loop_of(kind: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseLoop]:
    """A background loop with this kind of worker; for fixtures."""
    is_green = kind is GreenletWorker
    for name in ("background.background_loop", "background.hubs", "background.loop_thread"):
        module = f"redis_lock_decorators._io.{name}.are_threads_green"
        monkeypatch.setattr(module, lambda: is_green)
    monkeypatch.setattr(helper_threads, "hub", lambda: 0)  # native threads have no hub
    lease_loop = LeaseLoop()
    yield lease_loop
    lease_loop.end()

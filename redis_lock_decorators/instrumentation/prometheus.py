"""Metrics for Prometheus: ``configure(hooks=[PrometheusHook()])``; needs the extra ``prometheus``.

All have the label ``lock``: the template of ``@redis_lock``, never the name that it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from redis_lock_decorators.events import (
    Acquired,
    AcquireFailed,
    Acquiring,
    HandedOver,
    LockEvent,
    Lost,
    Released,
    RenewalLate,
    TimedOut,
    Way,
)
from redis_lock_decorators.instrumentation._labels import Labels

__all__ = ["PrometheusHook"]

#: The upper bounds of the histograms' buckets, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
#: How acquisitions end.
OUTCOMES = ("acquired", "timed_out", "failed")


class PrometheusHook:
    """A hook that counts and measures the locks of this process. The metrics are:

    - ``redis_lock_wait_seconds`` (histogram): how long acquisitions took, by ``outcome``:
      "acquired", "timed_out" or "failed" (an exception)
    - ``redis_lock_hold_seconds`` (histogram): how long locks were held
    - ``redis_lock_waiting``, ``redis_lock_held`` (gauges): how many acquisitions are under way, and
      how many locks are held
    - ``redis_lock_acquired_total`` (counter): acquisitions, by ``by``: see ``Acquired.by``
    - ``redis_lock_timed_out_total``, ``redis_lock_renewals_late_total``, ``redis_lock_lost_total``
      (counters)

    Args:
        registry: where the metrics are registered, by default in prometheus-client's own; each
            registry can have one such hook.
        label: returns the value of the label ``lock`` for an event; by default its ``label``.
        most_labels: how many values it may have; further ones become "other".
        buckets: the upper bounds of the histograms' buckets, in seconds.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        label: Callable[[LockEvent], str] | None = None,
        most_labels: int = 200,
        buckets: Sequence[float] = BUCKETS,
    ) -> None:
        registry = registry or REGISTRY

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(name, about, ("lock", *labels), registry=registry)

        def gauge(name: str, about: str) -> Gauge:
            # With several processes: the sum over those that live.
            return Gauge(name, about, ("lock",), registry=registry, multiprocess_mode="livesum")

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            return Histogram(name, about, ("lock", *labels), registry=registry, buckets=buckets)

        self._labels = Labels(label, most_labels)
        self._prepared: set[str] = set()  #: any thread
        self._wait = histogram("redis_lock_wait_seconds", "Time to acquire a lock", "outcome")
        self._hold = histogram("redis_lock_hold_seconds", "Time for which a lock was held")
        self._waiting = gauge("redis_lock_waiting", "Acquisitions that are under way")
        self._held = gauge("redis_lock_held", "Locks that are held")
        self._acquired = counter("redis_lock_acquired_total", "Locks that were acquired", "by")
        self._timed_out = counter("redis_lock_timed_out_total", "Locks that were not free in time")
        self._late = counter(
            "redis_lock_renewals_late_total",
            "Leases that were not renewed when less than half of their time was left",
        )
        self._lost = counter("redis_lock_lost_total", "Leases that ended before their release")

    def __call__(self, event: LockEvent) -> None:
        lock = self._labels.of(event)
        if lock not in self._prepared:
            self._prepare(lock)
        match event:
            case Acquiring():
                self._waiting.labels(lock).inc()
            case Acquired():
                self._end_wait(lock, "acquired", event.waited)
                self._acquired.labels(lock, event.by).inc()
                self._held.labels(lock).inc()
            case TimedOut():
                self._end_wait(lock, "timed_out", event.waited)
                self._timed_out.labels(lock).inc()
            case AcquireFailed():
                self._end_wait(lock, "failed", event.waited)
            case Released() | HandedOver() | Lost():
                self._held.labels(lock).dec()
                self._hold.labels(lock).observe(event.held)
                if isinstance(event, Lost):
                    self._lost.labels(lock).inc()
            case RenewalLate():
                self._late.labels(lock).inc()

    def _prepare(self, lock: str) -> None:
        """Expose zeros from the first event on, so that queries see the first of each as well."""
        self._prepared.add(lock)
        for metric in (self._timed_out, self._late, self._lost, self._hold, self._held):
            metric.labels(lock)
        for by in get_args(Way):
            self._acquired.labels(lock, by)
        for outcome in OUTCOMES:
            self._wait.labels(lock, outcome)

    def _end_wait(self, lock: str, outcome: str, waited: float) -> None:
        self._waiting.labels(lock).dec()
        self._wait.labels(lock, outcome).observe(waited)

"""Spans and metrics by OpenTelemetry: ``configure(hooks=[OpenTelemetryHook()])``.

It needs the extra ``opentelemetry``, and the SDK of the program to export anything.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.metrics import MeterProvider, get_meter
from opentelemetry.trace import Status, StatusCode, TracerProvider, get_tracer

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
)
from redis_lock_decorators.instrumentation._labels import Labels, readable

__all__ = ["OpenTelemetryHook"]

_NAME = "redis_lock_decorators"


class OpenTelemetryHook:
    """A hook that makes two spans of each acquisition, and the metrics of ``PrometheusHook``.

    The spans are ``redis_lock.wait`` and ``redis_lock.hold``, children of the span in which the
    acquisition began. They have the attributes ``redis_lock.name`` and ``redis_lock.label``, and of
    these, where they apply, ``redis_lock.by``, ``redis_lock.outcome`` and ``redis_lock.fence``. The
    status of a lock that was not acquired, or was lost, is an error.

    The metrics have the attribute ``redis_lock.label``: the template of ``@redis_lock``, never the
    name that it gives. Durations are in seconds: ``redis_lock.wait.duration``,
    ``redis_lock.hold.duration``, ``redis_lock.waiting``, ``redis_lock.held``,
    ``redis_lock.acquired``, ``redis_lock.timed_out``, ``redis_lock.renewals_late``,
    ``redis_lock.lost``.

    Args:
        tracer_provider: by default the global one.
        meter_provider: by default the global one.
        label: returns the value of ``redis_lock.label`` for an event; by default its ``label``.
        most_labels: how many values it may have; further ones become "other".
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        label: Callable[[LockEvent], str] | None = None,
        most_labels: int = 200,
    ) -> None:
        meter = get_meter(_NAME, meter_provider=meter_provider)
        self._tracer = get_tracer(_NAME, tracer_provider=tracer_provider)
        self._labels = Labels(label, most_labels)
        self._wait = meter.create_histogram(
            "redis_lock.wait.duration", "s", "Time to acquire a lock"
        )
        self._hold = meter.create_histogram(
            "redis_lock.hold.duration", "s", "Time for which a lock was held"
        )
        self._waiting = meter.create_up_down_counter(
            "redis_lock.waiting", "{acquisition}", "Acquisitions that are under way"
        )
        self._held = meter.create_up_down_counter(
            "redis_lock.held", "{lock}", "Locks that are held"
        )
        self._acquired = meter.create_counter(
            "redis_lock.acquired", "{lock}", "Locks that were acquired"
        )
        self._timed_out = meter.create_counter(
            "redis_lock.timed_out", "{acquisition}", "Locks that were not free in time"
        )
        self._late = meter.create_counter(
            "redis_lock.renewals_late",
            "{lease}",
            "Leases that were not renewed when less than half of their time was left",
        )
        self._lost = meter.create_counter(
            "redis_lock.lost", "{lease}", "Leases that ended before their release"
        )

    def __call__(self, event: LockEvent) -> None:
        label = {"redis_lock.label": self._labels.of(event)}
        match event:
            case Acquiring():
                self._waiting.add(1, label)
            case Acquired():
                self._acquired.add(1, {**label, "redis_lock.by": event.by})
                self._held.add(1, label)
                self._end_wait(event, event.waited, label, "acquired")
            case TimedOut():
                self._timed_out.add(1, label)
                self._end_wait(event, event.waited, label, "timed_out")
            case AcquireFailed():
                self._end_wait(event, event.waited, label, "failed", event.error)
            case Released() | HandedOver() | Lost():
                self._end_hold(event, label)
            case RenewalLate():
                self._late.add(1, label)

    def _end_wait(
        self,
        event: LockEvent,
        waited: float,
        label: dict[str, str],
        outcome: str,
        error: str = "",
    ) -> None:
        attributes: dict[str, str | int] = {"redis_lock.outcome": outcome}
        self._waiting.add(-1, label)
        self._wait.record(waited, {**label, "redis_lock.outcome": outcome})
        if isinstance(event, Acquired):
            attributes["redis_lock.by"] = event.by
            if event.fence is not None:
                attributes["redis_lock.fence"] = event.fence
        elif not error:
            error = "the lock was not free in time"
        self._add_span("redis_lock.wait", event, waited, {**label, **attributes}, error)

    def _end_hold(self, event: Released | HandedOver | Lost, label: dict[str, str]) -> None:
        self._held.add(-1, label)
        self._hold.record(event.held, label)
        outcome, error = "released", ""
        if isinstance(event, Lost):
            outcome, error = "lost", event.why
            self._lost.add(1, label)
        elif isinstance(event, HandedOver):
            outcome = "handed_over"
        elif event.error:
            outcome, error = "failed", event.error
        attributes: dict[str, str | int] = {**label, "redis_lock.outcome": outcome}
        self._add_span("redis_lock.hold", event, event.held, attributes, error)

    def _add_span(
        self,
        name: str,
        event: LockEvent,
        seconds: float,
        attributes: dict[str, str | int],
        error: str,
    ) -> None:
        """Add the span of what ends with this event; the context has the caller's span."""
        end = round(event.time * 1e9)
        span = self._tracer.start_span(
            name,
            attributes={"redis_lock.name": readable(event.lock_name), **attributes},
            start_time=end - round(seconds * 1e9),
        )
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end)

"""The spans and metrics of OpenTelemetry, of real locks."""

from __future__ import annotations

import contextlib

import pytest
from support.fronts import do
from support.leftovers import PATIENCE, TIDY_FRONTS

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from redis_lock_decorators import LockLostError, LockTimeoutError
from redis_lock_decorators._io.background.hook_calls import flush
from redis_lock_decorators.events import AcquireFailed, HandedOver, Released, RenewalLate
from redis_lock_decorators.instrumentation.opentelemetry import OpenTelemetryHook

FRONTS = TIDY_FRONTS


class Telemetry:
    """A program's SDK that keeps everything in memory."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("program")
        self.hook = OpenTelemetryHook(provider, MeterProvider([self.reader]))

    def spans(self):
        assert flush(PATIENCE)
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self):
        """The value of each metric, or its count, by name and attributes without the label."""
        assert flush(PATIENCE)
        found = {}
        for resource in self.reader.get_metrics_data().resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.data.data_points:
                    rest = [v for k, v in point.attributes.items() if k != "redis_lock.label"]
                    value = getattr(point, "count", getattr(point, "value", None))
                    found[" ".join([metric.name, *rest])] = value
        return found


@pytest.fixture
def telemetry():
    return Telemetry()


def lock_of(front, server, name, telemetry, **options):
    client = front.client(server)
    return front.package.RedisLock(name, client=client, hooks=[telemetry.hook], **options)


async def test_wait_and_hold_are_children_of_the_callers_span(front, server, name, telemetry):
    lock = lock_of(front, server, name, telemetry, fencing=True)

    with telemetry.tracer.start_as_current_span("caller") as caller:
        async with front.held(lock) as lease:
            await front.sleep(0.1)

    spans = telemetry.spans()
    wait, hold = spans["redis_lock.wait"], spans["redis_lock.hold"]
    for span in (wait, hold):
        assert span.parent.span_id == caller.get_span_context().span_id
        assert span.context.trace_id == caller.get_span_context().trace_id
        assert span.attributes["redis_lock.name"] == name
        assert span.attributes["redis_lock.label"] == "RedisLock"
        assert span.status.status_code is StatusCode.UNSET
    assert wait.attributes["redis_lock.by"] == "free"
    assert wait.attributes["redis_lock.fence"] == lease.fence
    assert hold.attributes["redis_lock.outcome"] == "released"
    assert 0.1e9 <= hold.end_time - hold.start_time < 5e9
    assert abs(wait.end_time - hold.start_time) < 1e8


async def test_lock_that_is_not_free_or_is_lost_is_an_error(front, server, direct, name, telemetry):
    lock = lock_of(front, server, name, telemetry, acquire_time=0.1)
    lease = await do(lock.acquire())
    with pytest.raises(LockTimeoutError):
        async with front.held(lock):
            pass
    wait = telemetry.spans()["redis_lock.wait"]
    direct.delete(lease.key)
    with contextlib.suppress(LockLostError):
        await do(lease.release())

    hold = telemetry.spans()["redis_lock.hold"]

    assert wait.attributes["redis_lock.outcome"] == "timed_out"
    assert wait.status.status_code is StatusCode.ERROR
    assert hold.attributes["redis_lock.outcome"] == "lost"
    assert hold.status.description == "its key is gone"
    assert telemetry.metrics() == {
        "redis_lock.waiting": 0,
        "redis_lock.held": 0,
        "redis_lock.acquired free": 1,
        "redis_lock.timed_out": 1,
        "redis_lock.lost": 1,
        "redis_lock.wait.duration acquired": 1,
        "redis_lock.wait.duration timed_out": 1,
        "redis_lock.hold.duration": 1,
    }


def event(kind, **facts):
    common = {"lock_name": "a", "key": "k", "label": "l", "acquisition": 1, "at": 1.0, "time": 2.0}
    return kind(**common, **facts)


@pytest.mark.parametrize(
    ("ended", "outcome", "error"),
    [
        (event(AcquireFailed, waited=1.0, error="CancelledError"), "failed", "CancelledError"),
        (event(HandedOver, held=1.0), "handed_over", None),
        (event(Released, held=1.0, error="TimeoutError"), "failed", "TimeoutError"),
    ],
)
def test_other_ends_are_outcomes_of_spans(telemetry, ended, outcome, error):
    telemetry.hook(ended)

    (span,) = telemetry.spans().values()
    assert span.attributes["redis_lock.outcome"] == outcome
    assert span.status.description == error
    assert (span.start_time, span.end_time) == (10**9, 2 * 10**9)


def test_late_renewals_are_counted(telemetry):
    telemetry.hook(event(RenewalLate, left=1.0, error=""))

    assert telemetry.metrics() == {"redis_lock.renewals_late": 1}
    assert telemetry.spans() == {}

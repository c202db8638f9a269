"""The metrics for Prometheus, of real locks."""

from __future__ import annotations

import contextlib

import pytest
from support.fronts import do
from support.leftovers import PATIENCE, TIDY_FRONTS, until
from support.metrics import samples

from redis_lock_decorators import LockLostError, Locks, LockTimeoutError
from redis_lock_decorators._io.background.hook_calls import flush

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest

from redis_lock_decorators.events import AcquireFailed, LockEvent, RenewalLate
from redis_lock_decorators.instrumentation.prometheus import PrometheusHook

FRONTS = TIDY_FRONTS
#: What each event has.
COMMON = {"key": "k", "acquisition": 1, "at": 1.0, "time": 2.0}


@pytest.fixture
def registry():
    return CollectorRegistry()


def lock_of(front, server, name, registry, **options):
    hooks = [PrometheusHook(registry)]
    return front.package.RedisLock(name, client=front.client(server), hooks=hooks, **options)


async def test_block_is_counted_and_measured(front, server, name, registry):
    lock = lock_of(front, server, name, registry)
    label = {"lock": "RedisLock"}

    async with front.held(lock):
        await until(front, lambda: registry.get_sample_value("redis_lock_held", label) == 1)
        await front.sleep(0.2)

    await until(front, lambda: registry.get_sample_value("redis_lock_held", label) == 0)
    assert (
        samples(registry, label)
        >= {
            "redis_lock_waiting": 0,
            "redis_lock_held": 0,
            "redis_lock_hold_seconds_count": 1,
            'redis_lock_wait_seconds_count{outcome="acquired"}': 1,
            'redis_lock_acquired_total{by="free"}': 1,
        }.items()
    )
    held = registry.get_sample_value("redis_lock_hold_seconds_sum", label)
    assert 0.2 <= held < 5
    assert registry.get_sample_value("redis_lock_hold_seconds_bucket", {**label, "le": "0.1"}) == 0


async def test_busy_and_lost_locks_are_counted(front, server, direct, name, registry):
    lock = lock_of(front, server, name, registry, acquire_time=0.1)
    lease = await do(lock.acquire())

    with pytest.raises(LockTimeoutError):
        async with front.held(lock):
            pass
    direct.delete(lease.key)
    with contextlib.suppress(LockLostError):
        await do(lease.release())

    label = {"lock": "RedisLock"}
    await until(front, lambda: registry.get_sample_value("redis_lock_lost_total", label) == 1)
    assert (
        samples(registry, label)
        >= {
            "redis_lock_waiting": 0,
            "redis_lock_held": 0,
            "redis_lock_timed_out_total": 1,
            'redis_lock_wait_seconds_count{outcome="timed_out"}': 1,
        }.items()
    )


def test_label_is_the_template_however_many_names_it_gives(server, name, registry):
    locks = Locks(client=server.client(), hooks=[PrometheusHook(registry)])

    @locks.redis_lock(f"{name}:{{number}}")
    def work(number):
        return number

    for number in range(20):
        work(number)

    label = {"lock": f"{name}:{{number}}", "by": "free"}
    assert flush(PATIENCE)
    assert registry.get_sample_value("redis_lock_acquired_total", label) == 20
    values = {sample.labels["lock"] for family in registry.collect() for sample in family.samples}
    assert values == {f"{name}:{{number}}"}


def event(kind=RenewalLate, label="a", **facts):
    return kind(lock_name="a:1", label=label, **COMMON, **facts)


def test_late_renewals_and_failed_acquisitions_are_counted(registry):
    hook = PrometheusHook(registry)

    hook(event(left=1.0, error=""))
    hook(event(AcquireFailed, waited=0.5, error="ConnectionError"))

    assert (
        samples(registry, {"lock": "a"})
        >= {
            "redis_lock_renewals_late_total": 1,
            'redis_lock_wait_seconds_count{outcome="failed"}': 1,
        }.items()
    )


def test_number_of_labels_is_limited(registry):
    hook = PrometheusHook(registry, most_labels=3)

    for number in range(10):
        hook(event(label=f"lock {number % 5}", left=1.0, error=""))

    found = {
        sample.labels["lock"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "redis_lock_renewals_late_total"
    }
    assert found == {"lock 0": 2, "lock 1": 2, "lock 2": 2, "other": 4}


def test_label_that_is_no_utf8_does_not_end_the_metrics(registry):
    PrometheusHook(registry)(event(label="caf\udce9", left=1.0, error=""))

    assert b'lock="caf\\\\udce9"' in generate_latest(registry)


def test_label_may_be_computed(registry):
    def kind_of_lock(event: LockEvent) -> str:
        return event.lock_name.partition(":")[0]

    PrometheusHook(registry, label=kind_of_lock)(event(label="RedisLock", left=1.0, error=""))

    assert registry.get_sample_value("redis_lock_renewals_late_total", {"lock": "a"}) == 1

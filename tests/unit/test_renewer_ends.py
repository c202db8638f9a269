"""The renewer when leases end, are released or extended."""

import gc
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import Request, delivered, paused
from support.renewers import (
    HOUR,
    assert_reported_once_at_its_deadline,
    new_lease_loop,
    release_keys,
    renewals,
)
from support.simulated_loop import HeldLease

from redis_lock_decorators._flow.claim_state import RELEASING
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.renewal import renewer
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease, warn_if_dropped
from redis_lock_decorators._io.blocking_port import run

# Ends of leases


def release_without_success(lease: HeldLease) -> None:
    lease.port.renewer.remove(lease.watch)
    lease.claim.state = RELEASING


def report_lost(lease: HeldLease) -> None:
    lease.claim.lost_reason = "reported by a release"


@pytest.mark.parametrize("end", [release_keys, release_without_success, report_lost])
@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_that_is_over_is_not_renewed(end: Any, after: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=30)
    port.clock.advance(after)

    end(lease)
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert port.server.value(lease.key) is None
    assert lease.notifications == []
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_that_was_garbage_collected_is_not_renewed(
    after: float, caplog: pytest.LogCaptureFixture
) -> None:
    lease_loop, port = new_lease_loop()
    leases = [HeldLease(port, "a", expire=30)]
    key = leases[0].key
    port.clock.advance(after)

    leases.clear()
    gc.collect()
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert port.server.value(key) is None
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "lock 'a' was garbage-collected without a release" in message


def test_lease_that_is_garbage_collected_during_a_renewal_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def drop(request: Request) -> Any:
        leases.clear()
        gc.collect()
        return delivered(request)

    lease_loop, port = new_lease_loop()
    leases = [HeldLease(port, "a", expire=30)]
    port.clock.advance(1)
    port.usual = drop

    port.clock.advance(31)

    (message,) = [record.getMessage() for record in caplog.records]
    assert "lock 'a' was garbage-collected without a release" in message
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_lease_that_is_tracked_again_during_its_check_gives_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread is about to release it, and another one changes its expiry."""

    def track_again(tracked: TrackedLease, now: float) -> None:
        lease_loop.renewer.add(tracked)
        warn_if_dropped(tracked, now)
        checked.append(tracked)

    checked: list[TrackedLease] = []
    monkeypatch.setattr(renewer, "warn_if_dropped", track_again)
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=30)
    port.clock.advance(9)  # until its first check is scheduled
    lease.watch.is_tracked = False  # ``remove`` continues after the check

    port.clock.advance(5)

    assert checked
    assert not caplog.records


@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_released_lease_that_is_collected_gives_no_warning(
    after: float, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = new_lease_loop()
    leases = [HeldLease(port, "a", expire=30)]
    port.clock.advance(after)

    release_without_success(leases.pop())
    gc.collect()
    port.clock.advance(31)

    assert not caplog.records


@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_no_longer_renewed_is_reported_lost_at_its_deadline(after: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=30)
    port.clock.advance(after)

    lease.stop_renewal()
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert_reported_once_at_its_deadline(lease)
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_lease_released_during_its_renewal_remains_released() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.faults = [paused(1)]
    while not renewals(port):
        port.clock.advance(0.1)

    release_keys(lease)
    port.clock.advance(60)

    assert port.server.value(lease.key) is None
    assert lease.notifications == []
    assert len(renewals(port)) == 1
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_loop_has_no_wake_up_after_the_last_lease() -> None:
    lease_loop, port = new_lease_loop()
    leases = [
        HeldLease(port, name, expire=expire) for name, expire in [("a", 10), ("b", 60), ("c", 1)]
    ]
    port.clock.advance(100)

    for lease in leases:
        release_keys(lease)
    port.clock.advance(60)

    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_renewer_renews_again_after_it_was_idle() -> None:
    lease_loop, port = new_lease_loop()
    release_keys(HeldLease(port, "a"))
    port.clock.advance(60)
    idle = lease_loop.wakes_at

    lease = HeldLease(port, "a")
    port.clock.advance(60)

    assert idle == math.inf
    assert lease.is_live()


def test_lease_released_immediately_is_not_checked() -> None:
    lease_loop, port = new_lease_loop()

    lease = HeldLease(port, "a")
    lease_loop.renewer.remove(lease.watch)

    assert len(lease_loop.renewer) == 0


def test_lease_without_renewal_is_reported_lost_at_its_deadline() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10, auto_renew=False)

    port.clock.advance(60)

    assert_reported_once_at_its_deadline(lease)
    assert renewals(port) == []
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


@given(
    expire=st.floats(min_value=0.1, max_value=100),
    thirds=st.floats(min_value=0.5, max_value=20),
    latency=st.floats(min_value=0, max_value=0.01),
)
def test_lease_is_renewed_until_its_max_hold_and_no_longer(
    expire: float, thirds: float, latency: float
) -> None:
    lease_loop, port = new_lease_loop()
    max_hold = expire * thirds / 3
    port.latency = min(latency, max_hold / 20)
    lease = HeldLease(port, "a", expire=expire, max_hold=max_hold)
    first, last = lease.claim.since + max_hold, lease.claim.entered + max_hold

    port.clock.advance(max_hold + 1)

    ((at, why),) = lease.notifications
    assert first - 0.01 * min(expire, max_hold) - 0.02 <= at <= last
    assert lease.claim.deadline <= last
    assert "max_hold" in why
    assert port.server.value(lease.key) is None
    assert len(lease_loop.renewer) == 0


def test_renewal_that_starts_late_does_not_exceed_max_hold() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10, max_hold=16)
    lease_loop.lag = 2  # the event loop is busy with something else

    port.clock.advance(60)

    assert renewals(port) != []
    assert lease.claim.deadline <= lease.claim.since + 16


# Extensions by the holder


def test_extended_lease_is_confirmed_after_each_third_of_its_expire() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(1)
    run(extend(port, lease.claim, 100))
    extended, deadline = port.now(), lease.claim.deadline

    port.clock.advance(80)

    gaps = [later - at for at, later in itertools.pairwise([extended, *renewals(port)])]
    assert len(gaps) >= 80 / (10 / 3) - 1
    assert max(gaps) < 10 / 3 + 0.1
    assert lease.claim.deadline == deadline
    port.clock.advance(HOUR)
    assert lease.is_live()
    assert lease.notifications == []


def test_loss_of_an_extended_lease_is_reported_at_its_next_renewal() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=3)
    run(extend(port, lease.claim, 40))
    port.clock.advance(20)

    port.server.put(lease.key, "another")
    port.clock.advance(1.1)

    assert len(lease.notifications) == 1


def test_extended_lease_without_renewal_is_lost_at_its_new_deadline() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10, auto_renew=False)
    run(extend(port, lease.claim, 100))

    port.clock.advance(HOUR)

    assert lease.notifications[0][0] > 1090
    assert_reported_once_at_its_deadline(lease)


def test_extension_while_a_renewal_is_under_way_is_not_undone() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.faults = [paused(1)]
    while not renewals(port):
        port.clock.advance(0.1)
    run(extend(port, lease.claim, 100))
    deadline = lease.claim.deadline

    port.clock.advance(2)

    assert lease.claim.deadline == deadline


def test_no_second_renewal_is_sent_while_the_first_one_hangs() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.faults = [paused(15)]
    port.clock.advance(4)
    run(extend(port, lease.claim, 10))

    port.clock.advance(8)  # past the first deadline, when the next renewal is due

    assert len(renewals(port)) == 1
    assert lease.is_live()


def test_lease_shortened_by_its_holder_is_renewed_in_time() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=60)
    run(adjust(port, lease.claim, lambda left: 3))
    port.renewer.add(lease.watch)

    port.clock.advance(60)

    assert lease.notifications == []
    assert lease.is_live()

"""Leases that are no longer renewed use no memory, even with a long expiry."""

import gc
import math
from collections.abc import Callable

import pytest
from support.renewers import new_lease_loop, release_keys
from support.simulated_loop import HeldLease

from redis_lock_decorators._flow.renewal.schedule import MOST_REMOVED
from redis_lock_decorators._rules.lease_times import LONGEST_CHECK

DAY, YEAR = 86_400.0, 365 * 86_400.0


@pytest.mark.parametrize("expire", [10, DAY, YEAR])
def test_released_leases_are_forgotten_while_another_is_renewed(expire: float) -> None:
    lease_loop, port = new_lease_loop()
    short = HeldLease(port, "short", expire=0.3)

    for number in range(2000):
        lease = HeldLease(port, f"lock {number}", expire=expire)
        port.clock.advance(0.05)
        release_keys(lease)
        assert len(lease_loop.renewer) < 20

    assert short.is_live()


@pytest.mark.parametrize("expire", [10, DAY, YEAR])
def test_many_leases_released_together_are_forgotten(expire: float) -> None:
    lease_loop, port = new_lease_loop()
    leases = [
        HeldLease(port, f"lock {number}", expire=expire) for number in range(3 * MOST_REMOVED)
    ]
    port.clock.advance(1)

    for lease in leases:
        release_keys(lease)
    port.clock.advance(0.01)

    assert len(lease_loop.renewer) <= MOST_REMOVED


@pytest.mark.parametrize("expire", [10, DAY, YEAR])
def test_loop_does_not_wake_up_for_a_minute_after_the_last_lease(expire: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=expire)
    port.clock.advance(1)
    release_keys(lease)

    port.clock.advance(LONGEST_CHECK)

    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)
    assert not lease_loop.renewer._gone


def test_garbage_collected_lease_of_a_year_is_forgotten_in_a_minute() -> None:
    lease_loop, port = new_lease_loop()
    leases = [HeldLease(port, f"lock {number}", expire=YEAR) for number in range(100)]
    port.clock.advance(1000)

    leases.clear()
    gc.collect()
    port.clock.advance(LONGEST_CHECK)

    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)
    assert dict(port.held) == {}


def test_lease_of_a_year_is_renewed_and_reported_lost_in_time() -> None:
    _, port = new_lease_loop()
    lease, other = (
        HeldLease(port, "a", expire=3 * DAY),
        HeldLease(port, "b", expire=DAY, auto_renew=False),
    )

    port.clock.advance(0.9 * DAY)
    before = [sent.at for sent in port.log if sent.verb == "renew"]
    port.clock.advance(2.2 * DAY)

    assert before == []
    assert len([sent.at for sent in port.log if sent.verb == "renew"]) == 3
    assert lease.is_live()
    ((notified_at, _),) = other.notifications
    assert abs(notified_at - other.claim.deadline) < 0.05


def test_lease_removed_during_its_renewal_leaves_nothing() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    while not lease_loop.works and port.now() < 1010:
        port.clock.advance(0.0005)

    lease_loop.renewer.remove(lease.watch)
    port.clock.advance(0.1)

    assert len(lease_loop.renewer) == 0
    assert not lease_loop.renewer._gone  # before any tick: the loop may lose its timer now


def test_lease_removed_just_after_it_was_unscheduled_needs_a_tick() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(1)
    watch = lease.watch

    class Unscheduled(float):
        """A due time; when a thread has read it, the event loop unschedules the lease."""

        def __gt__(self, other: object) -> bool:
            lease_loop.renewer._unschedule(watch)
            return True

    watch.due = Unscheduled(watch.due)
    lease_loop.renewer.remove(watch)

    assert lease_loop.renewer._gone == {watch}
    assert len(lease_loop.renewer) == 1
    lease_loop.renewer.tick()
    assert len(lease_loop.renewer) == 0


@pytest.mark.parametrize("after", [0, 1])
def test_lease_added_again_after_it_was_removed_is_renewed(after: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(after)

    lease_loop.renewer.remove(lease.watch)
    lease_loop.renewer.add(lease.watch)
    port.clock.advance(60)

    assert lease.is_live()


def test_lease_added_twice_and_removed_is_not_on_the_wheel() -> None:
    lease_loop, port = new_lease_loop()
    short, lease = HeldLease(port, "short", expire=0.3), HeldLease(port, "a", expire=DAY)
    port.clock.advance(1)

    lease_loop.renewer.add(lease.watch)
    lease_loop.renewer.remove(lease.watch)
    port.clock.advance(1)

    assert short.is_live()
    assert len(lease_loop.renewer) == 1


@pytest.mark.parametrize("expire", [10, DAY])
def test_locks_acquired_in_turn_rarely_reach_the_event_loop(
    expire: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_loop, port = new_lease_loop()
    port.latency = 0.0001
    reached, call, tick = [0, 0], lease_loop.call, lease_loop.renewer.tick

    def counting_call(function: Callable[[], object]) -> None:
        reached[0] += 1
        call(function)

    def counting_tick() -> None:
        reached[1] += 1
        tick()

    monkeypatch.setattr(lease_loop, "call", counting_call)
    monkeypatch.setattr(lease_loop.renewer, "tick", counting_tick)

    for _ in range(5000):
        release_keys(HeldLease(port, "a", expire=expire))
        port.clock.advance(0.0018)

    assert port.now() == pytest.approx(1010, abs=0.5)
    assert max(reached) <= 6

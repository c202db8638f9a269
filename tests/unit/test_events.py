"""The events of one claim, in virtual time: each end is reported once, with its facts."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from support.faults import raising, refused, swallowed
from support.observed import facts, kinds, observed
from support.queue_world import KEY, World
from support.renewers import new_lease_loop
from support.simulated_loop import HeldLease
from support.simulation import SimulatedPort, cluster_port, new_claim

from redis_lock_decorators import events
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError


def held(port: SimulatedPort, seen: list[Any], **options: Any) -> Claim:
    claim = observed(new_claim("a", **options), seen)
    assert run(acquire(port, claim, 0, 0.1)) is None
    return claim


def test_events_of_a_free_lock_have_its_name_key_label_and_times() -> None:
    port, seen = SimulatedPort(), []
    port.latency = 0.2
    claim = held(port, seen)
    port.clock.advance(3)

    run(release(port, claim, "script"))

    acquiring, acquired, released = seen
    assert [event.at for event in seen] == pytest.approx([1000, 1000.2, 1003.4])
    assert {event.time for event in seen} == {5.0}
    assert {(e.lock_name, e.key, e.label, e.acquisition) for e in seen} == {
        ("a", "sys:lock:a", "label", acquiring.acquisition)
    }
    assert facts(acquired) == {"waited": 0.2, "by": "free", "fence": None}
    assert facts(released) == {"held": 3.2, "error": ""}


def test_each_acquisition_has_another_number() -> None:
    first: list[Any] = []
    second: list[Any] = []

    held(SimulatedPort(), first)
    held(SimulatedPort(), second)

    assert first[0].acquisition != second[0].acquisition


def test_time_out_is_reported_with_the_time_that_was_waited() -> None:
    port, seen = SimulatedPort(), []
    port.server.put(KEY, "another", 100)

    run(acquire(port, observed(new_claim("a"), seen), 2, 0.1, "poll"))

    assert kinds(seen) == ["Acquiring", "TimedOut"]
    assert 2 <= seen[-1].waited < 2.1


def test_lock_that_a_later_try_finds_free_is_acquired_by_polling() -> None:
    port, seen = SimulatedPort(), []
    port.server.put(KEY, "another", 1)

    run(acquire(port, observed(new_claim("a"), seen), 5, 0.1, "poll"))

    assert seen[-1].by == "poll"
    assert 1 <= seen[-1].waited < 2


def test_fence_is_reported() -> None:
    port, seen = SimulatedPort(), []
    claim = observed(new_claim("a"), seen)
    claim.fencing = True

    run(acquire(port, claim, 0, 0.1))

    assert seen[-1].fence == claim.fence is not None


@pytest.mark.parametrize("error", [Disconnected("no"), KeyboardInterrupt()])
def test_exception_ends_an_acquisition_once(error: BaseException) -> None:
    port, seen = SimulatedPort(), []
    port.usual = raising(error)

    with pytest.raises(type(error)):
        run(acquire(port, observed(new_claim("a"), seen), 1, 0.1))

    assert kinds(seen) == ["Acquiring", "AcquireFailed"]
    assert seen[-1].error == type(error).__name__


def test_request_that_was_never_sent_times_out_once_for_several_slots() -> None:
    port, seen = cluster_port(), []
    port.server.put(b"sys:lock:b", "another", 100)

    run(acquire(port, observed(new_claim("a", "b"), seen), 0, 0.1))

    assert kinds(seen) == ["Acquiring", "TimedOut"]
    assert seen[-1].lock_name == "a, b"


def test_interrupted_block_reports_a_release() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)

    run(undo(port, claim))
    run(undo(port, claim))

    assert kinds(seen) == ["Acquiring", "Acquired", "Released"]


def test_exception_right_after_the_acquisition_reports_its_end() -> None:
    port, seen = SimulatedPort(), []
    claim = observed(new_claim("a"), seen)
    claim.observer.acquiring(claim, port.now())  # type: ignore[union-attr]

    run(undo(port, claim))

    assert kinds(seen) == ["Acquiring", "AcquireFailed"]
    assert seen[-1].error == "interrupted"


def test_second_release_reports_nothing() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)

    run(release(port, claim, "script"))
    run(release(port, claim, "script"))

    assert kinds(seen) == ["Acquiring", "Acquired", "Released"]


def test_release_that_finds_a_loss_reports_only_that() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)
    port.server.drop(KEY)

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert kinds(seen) == ["Acquiring", "Acquired", "Lost"]
    assert seen[-1].why == claim.lost_reason == "its key is gone"


def test_extension_that_finds_a_loss_reports_it_once() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)
    port.server.drop(KEY)
    port.clock.advance(1)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 5))
    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert kinds(seen) == ["Acquiring", "Acquired", "Lost"]
    assert seen[-1].held == pytest.approx(1, abs=0.01)


def test_extension_after_the_deadline_reports_a_loss() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)
    port.clock.advance(11)

    with pytest.raises(LockLostError):
        run(extend(port, claim, 5))

    assert kinds(seen)[2:] == ["Lost"]


def test_failed_release_of_a_block_is_reported_with_its_error() -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)
    port.usual = refused

    run(leave(port, claim, "script", failed=False))

    assert kinds(seen) == ["Acquiring", "Acquired", "Released"]
    assert seen[-1].error == "ConnectionError"


def test_forked_child_reports_nothing_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    port, seen = SimulatedPort(), []
    claim = held(port, seen)
    seen.clear()
    monkeypatch.setattr(fork, "process_id", fork.process_id + 1)

    claim.observer.ended(claim, port.now())  # type: ignore[union-attr]

    assert seen == []


def test_step_whose_report_was_cut_short_is_reported_with_the_next() -> None:
    port, seen = SimulatedPort(), []
    claim = observed(new_claim("a"), seen)
    report = claim.observer._report  # type: ignore[union-attr]

    def cut_short(_: object) -> None:
        raise KeyboardInterrupt

    claim.observer._report = cut_short  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        run(acquire(port, claim, 0, 0.1))
    claim.observer._report = report  # type: ignore[union-attr]
    run(undo(port, claim))

    assert kinds(seen) == ["Acquiring", "AcquireFailed"]


# The queue and cohorts


def test_waiter_in_the_queue_reports_the_grant() -> None:
    world, seen = World(), []
    holder = world.holder()
    waiter = world.process().acquire()
    observed(waiter.claim, seen)
    world.advance(2)

    holder.release()
    world.advance(0.05)

    assert kinds(seen) == ["Acquiring", "Acquired"]
    assert seen[-1].by == "queue"
    assert seen[-1].waited == pytest.approx(2, abs=0.05)


def test_waiter_that_leaves_the_queue_reports_a_time_out() -> None:
    world, seen = World(), []
    world.holder()
    observed(world.process().acquire(wait=1).claim, seen)

    world.advance(3)

    assert kinds(seen) == ["Acquiring", "TimedOut"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Disconnected("cut")])
def test_waiter_that_is_interrupted_reports_it(error: BaseException) -> None:
    world, seen = World(), []
    world.holder()
    waiter = world.process().acquire()
    observed(waiter.claim, seen)
    world.advance(1)

    waiter.process.waiters[-1].interrupt(error)
    world.advance(1)

    assert kinds(seen) == ["Acquiring", "AcquireFailed"]


def test_hand_over_in_a_cohort_is_reported_by_both() -> None:
    world, given, received = World(), [], []  # type: ignore[var-annotated]
    process = world.process()
    first, second = [process.acquire(strategy="cohort") for _ in range(2)]
    observed(first.claim, given)
    observed(second.claim, received)
    world.advance(0.1)

    first.release()
    world.advance(0.01)

    assert second.is_live
    assert kinds(given) == ["Acquiring", "Acquired", "HandedOver"]
    assert given[-1].held == pytest.approx(0.1, abs=0.05)
    assert [event.by for event in (given[1], received[1])] == ["free", "cohort"]
    second.release()
    world.advance(0.1)
    assert kinds(received) == ["Acquiring", "Acquired", "Released"]


# Renewal


def renewed_lease(seen: list[Any], **options: Any) -> tuple[SimulatedPort, HeldLease]:
    _, port = new_lease_loop()
    claim = observed(new_claim("a", expire=9), seen)
    claim.owner = object()
    assert run(acquire(port, claim, 0, 0.1)) is None
    return port, HeldLease(port, claim=claim, expire=9, **options)


def test_renewals_are_reported_with_the_time_left() -> None:
    seen: list[Any] = []
    port, _lease = renewed_lease(seen)

    port.clock.advance(7)

    assert kinds(seen) == ["Acquiring", "Acquired", "Renewed", "Renewed"]
    assert all(5.5 < event.left < 6.5 for event in seen[2:])


def test_late_renewal_is_reported_once_before_it_succeeds() -> None:
    seen: list[Any] = []
    port, _lease = renewed_lease(seen)
    port.usual, usual = swallowed, port.usual

    port.clock.advance(7)
    port.usual = usual
    port.clock.advance(5)

    late = [event for event in seen if isinstance(event, events.RenewalLate)]
    assert kinds(seen)[2:4] == ["RenewalLate", "Renewed"]
    assert len(late) == 1
    assert 0 < late[0].left < 4.5
    assert late[0].error.startswith("TimeoutError")


def test_slow_renewal_is_reported_as_late_when_it_succeeds() -> None:
    seen: list[Any] = []
    _, port = new_lease_loop()
    claim = observed(new_claim("a", expire=9), seen)
    claim.owner = object()
    assert run(acquire(port, claim, 0, 0.1)) is None

    claim.observer.renewed(claim, claim.deadline - 2, 0.5)  # type: ignore[union-attr]

    assert facts(seen[-2]) == {"left": 2.0, "error": ""}
    assert facts(seen[-1]) == {"left": 2.0, "took": 0.5}


def test_loss_that_a_renewal_finds_is_reported_before_the_release() -> None:
    seen: list[Any] = []
    port, lease = renewed_lease(seen)
    port.server.drop(KEY)
    port.clock.advance(4)

    with pytest.raises(LockLostError):
        run(release(port, lease.claim, "script"))

    assert kinds(seen) == ["Acquiring", "Acquired", "Lost"]
    assert seen[-1].why == "its key is gone"


def test_loss_at_the_deadline_is_reported() -> None:
    seen: list[Any] = []
    port, _lease = renewed_lease(seen)
    port.usual = swallowed

    port.clock.advance(20)

    assert kinds(seen)[-2:] == ["RenewalLate", "Lost"]


def test_lease_that_is_garbage_collected_is_reported_as_lost() -> None:
    seen: list[Any] = []
    port, lease = renewed_lease(seen)

    port.clock.advance(1)
    del lease
    port.clock.advance(10)

    assert kinds(seen) == ["Acquiring", "Acquired", "Lost"]
    assert "garbage-collected" in seen[-1].why

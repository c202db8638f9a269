"""The renewer with outages: a loss is reported once and in time."""

import itertools
import math

import pytest
from support.faults import (
    Fate,
    delivered,
    paused,
    raising,
    reply_lost,
    request_lost,
    slow,
    swallowed,
)
from support.renewers import (
    HOUR,
    assert_reported_once_at_its_deadline,
    new_lease_loop,
    renewals,
)
from support.simulated_loop import HeldLease, renewing_port
from support.simulation import SimulatedServer

from redis_lock_decorators._rules.keys import slot_of

# Unknown outcomes


@pytest.mark.parametrize("fate", [request_lost, reply_lost, swallowed, raising(OSError("no"))])
def test_lease_survives_an_outage_shorter_than_its_remaining_time(fate: Fate) -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(3)

    port.usual = fate
    port.clock.advance(4)
    port.usual = delivered
    port.clock.advance(HOUR)

    assert lease.is_live()
    assert lease.notifications == []


@pytest.mark.parametrize("fate", [request_lost, swallowed, raising(OSError("no"))])
def test_loss_by_an_outage_is_reported_once_at_the_deadline(fate: Fate) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    deadline = lease.claim.deadline
    port.usual = fate

    port.clock.advance(HOUR)

    assert lease.claim.deadline == deadline
    assert_reported_once_at_its_deadline(lease)
    assert lease.claim.is_lost(port.now())
    assert "time ran out" in lease.notifications[0][1]
    assert lease_loop.wakes_at == math.inf


def test_renewal_is_retried_with_growing_pauses_until_the_deadline() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = request_lost

    port.clock.advance(20)

    tries = renewals(port)
    gaps = [later - at for at, later in itertools.pairwise(tries)]
    assert gaps[0] < 0.01, "the first repetition is immediate, as an idle connection may be stale"
    assert 0.3 < max(gaps) < 1.0
    assert 10 < len(tries) < 30
    assert lease.claim.deadline - 1 < tries[-1] < lease.claim.deadline


def test_pauses_start_again_after_a_success() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.faults = [request_lost] * 5
    port.clock.advance(6)
    port.faults = [None, request_lost, request_lost]

    port.clock.advance(10)

    tries = renewals(port)
    gaps = [later - at for at, later in itertools.pairwise(tries)]
    assert lease.is_live()
    assert port.faults == []
    assert sum(gap < 0.01 for gap in gaps) == 2


def test_loss_is_reported_in_time_while_a_renewal_hangs() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = paused(HOUR)  # the reply arrives very late

    port.clock.advance(60)
    before = list(lease.notifications)
    port.clock.advance(2 * HOUR)

    assert len(renewals(port)) == 1
    assert_reported_once_at_its_deadline(lease)
    assert lease.notifications == before


def test_renewal_answered_after_the_deadline_does_not_undo_the_loss() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    deadline = lease.claim.deadline
    port.faults = [paused(8)]

    port.clock.advance(11.5)

    assert port.server.left(lease.key) > 0, "the lease was not renewed in the server"
    assert lease.claim.deadline == deadline
    assert lease.claim.is_lost(port.now())
    assert len(lease.notifications) == 1
    assert len(lease_loop.renewer) == 0


def test_renewal_in_time_that_is_read_too_late_is_a_loss() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    deadline = lease.claim.deadline
    while not renewals(port):
        port.clock.advance(0.0005)

    lease_loop.freeze(9)
    port.clock.advance(9.5)

    assert port.server.value(lease.key) is not None
    assert lease.claim.deadline == deadline
    assert len(lease.notifications) == 1


def test_stopped_process_reports_the_loss_as_soon_as_it_continues() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)

    lease_loop.freeze(100)
    port.clock.advance(99)
    reported_before = list(lease.notifications)
    port.clock.advance(2)

    assert reported_before == []
    assert len(lease.notifications) == 1
    assert renewals(port) == []


def test_slow_renewal_counts_from_its_send_time() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = slow(2)

    port.clock.advance(5.5)

    (sent,) = renewals(port)
    assert lease.claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_outage_of_one_client_does_not_delay_the_renewals_of_another() -> None:
    lease_loop, sick = new_lease_loop()
    sound = renewing_port(lease_loop, server=SimulatedServer(lease_loop.clock))
    leases = [HeldLease(port, "a", expire=10) for port in (sick, sound)]
    sick.usual = swallowed
    before = lease_loop.now()

    lease_loop.clock.advance(60)

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(sound)])]
    assert max(gaps) < 3.4
    assert_reported_once_at_its_deadline(leases[0])
    assert "time ran out" in leases[0].notifications[0][1], "the other server received a request"
    assert leases[1].is_live()


def test_failing_node_of_a_cluster_does_not_affect_leases_on_others() -> None:
    _, port = new_lease_loop(cluster=True)
    sick, sound = HeldLease(port, "a", expire=10), HeldLease(port, "b", expire=10)
    assert slot_of(sick.key) != slot_of(sound.key)
    port.usual = lambda request: (swallowed if sick.key in request.command else delivered)(request)

    for _ in range(600):
        port.clock.advance(0.1)
        assert sound.is_live()

    assert_reported_once_at_its_deadline(sick)
    assert sound.notifications == []


# Reasons of a loss


@pytest.mark.parametrize(
    ("holder", "why"), [("another-identifier", "another-…"), (None, "its key is gone")]
)
def test_lost_key_is_reported_with_its_holder(holder: str | None, why: str) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.server.drop(lease.key)
    if holder is not None:
        port.server.put(lease.key, holder, 60)

    port.clock.advance(3.4)

    ((_, reported),) = lease.notifications
    assert why in reported
    assert not lease.is_live()
    assert port.held == {}
    assert len(lease_loop.renewer) == 0


def test_key_of_another_holder_is_unchanged() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.server.put(lease.key, "another", 60)

    port.clock.advance(59)

    assert port.server.value(lease.key) == "another"
    assert port.server.left(lease.key) == pytest.approx(1)
    assert len(renewals(port)) == 1


def test_lost_lease_does_not_affect_the_others_of_its_request() -> None:
    _, port = new_lease_loop()
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    port.server.drop(leases[1].key)

    port.clock.advance(HOUR)

    assert [len(lease.notifications) for lease in leases] == [0, 1, 0]
    assert [lease.is_live() for lease in leases] == [True, False, True]


def test_lost_lease_is_not_acquired_again() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.server.drop(lease.key)

    port.clock.advance(HOUR)

    assert port.server.value(lease.key) is None

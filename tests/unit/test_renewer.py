"""The renewer without faults: leases are renewed while they are held."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.renewers import HOUR, new_lease_loop, renewals
from support.simulated_loop import HeldLease, SimulatedLoop, renewing_port
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators._rules.options import Options

# Without faults


def test_granted_lock_soon_has_its_whole_lease() -> None:
    _, port = new_lease_loop()
    claim = new_claim("a", expire=10)
    claim.identifier = "handed-over"
    claim.since, claim.entered = port.now() - 0.4, port.now()
    claim.deadline, claim.duration = lease_times.deadline(claim.since, 2.5), 2.5
    port.server.put(claim.keys[0], claim.identifier, 2.1)
    lease = HeldLease(port, claim=claim, expire=10)
    first = port.now()

    port.clock.advance(0.2)

    (renewed,) = renewals(port)
    assert renewed - first <= 0.11
    assert claim.deadline > first + 9.8
    port.clock.advance(3)
    assert len(renewals(port)) == 1
    assert lease.is_live()


@pytest.mark.parametrize("options", [{}, {"max_hold": 20.0}, {"max_hold": 8.0}])
@pytest.mark.parametrize("lasts", [9.7, 5.0, 2.5, 1.2])
def test_lease_that_was_handed_off_is_checked_in_time(
    lasts: float, options: dict[str, Any]
) -> None:
    _, port = new_lease_loop()
    claim = new_claim("a", expire=10)
    claim.grant_ms = 2500
    claim.since = claim.entered = port.now()
    claim.deadline, claim.duration = port.now() + lasts, lasts
    given = Options(**{"expire": 10, **options})

    tracked = TrackedLease(claim, print, claim, port, given)  # type: ignore[arg-type]
    ownership = tracked.ownership

    when, grain = tracked.next_check()
    assert when - grain - lease_times.drift_margin(lasts) - 1e-9 <= tracked.first_check()
    assert tracked.first_check() <= when - grain
    assert ownership is not None


def test_connection_to_a_far_server_is_opened_before_a_renewal() -> None:
    _, port = new_lease_loop()
    port.latency = 0.5
    acquired_at = port.now()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(1)

    (prepared,) = [sent for sent in port.log if sent.command[0] == "EVAL" and sent.command[2] == 0]

    assert prepared.at < acquired_at + 2
    port.clock.advance(9)
    assert lease.is_live()


@pytest.mark.parametrize(("latency", "options"), [(0.05, {}), (0.5, {"auto_renew": False})])
def test_no_connection_is_opened_early_unless_needed(
    latency: float, options: dict[str, Any]
) -> None:
    _, port = new_lease_loop()
    port.latency = latency
    HeldLease(port, "a", expire=10, **options)
    port.clock.advance(1)

    assert not [sent for sent in port.log if sent.command[2] == 0]


def test_lease_is_renewed_every_third_of_it_for_hours() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=30)
    before = port.now()

    for _ in range(3 * 3600):
        port.clock.advance(1)
        assert lease.is_live()
        assert port.server.value(lease.key) == lease.claim.identifier

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(port)])]
    assert all(10 - 1.3 <= gap <= 10.01 for gap in gaps)
    assert lease.notifications == []


@given(expire=st.floats(min_value=0.1, max_value=10_000), phase=st.floats(0, 1))
def test_lease_of_any_length_is_renewed_while_a_half_of_it_is_left(
    expire: float, phase: float
) -> None:
    lease_loop = SimulatedLoop(Clock(), phase=phase)
    port = renewing_port(lease_loop, server=SimulatedServer(lease_loop.clock))
    lease = HeldLease(port, "a", expire=expire)
    before = lease.claim.since

    port.clock.advance(expire * 5)

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(port)])]
    assert len(gaps) >= 14
    assert max(gaps) < expire / 2
    assert lease.is_live()


def test_leases_that_are_due_together_are_renewed_by_one_request() -> None:
    _, port = new_lease_loop()
    port.latency = 0
    leases = [HeldLease(port, f"lock {number}", expire=30) for number in range(300)]

    port.clock.advance(15)

    assert len(renewals(port)) == 1
    assert all(port.server.left(lease.key) > 20 for lease in leases)


def test_leases_of_different_times_are_renewed_together_later() -> None:
    _, port = new_lease_loop()
    leases = []
    for number in range(100):
        leases.append(HeldLease(port, f"lock {number}", expire=60))
        port.clock.advance(0.02)

    port.clock.advance(HOUR)

    assert len(renewals(port)) <= 2 * HOUR / 18
    assert all(lease.is_live() for lease in leases)


def test_leases_of_different_length_due_together_share_a_request() -> None:
    _, port = new_lease_loop()
    port.latency = 0
    short, long = HeldLease(port, "a", expire=24), HeldLease(port, "b", expire=48)

    port.clock.advance(HOUR)

    both = [sent for sent in port.log if sent.verb == "renew" and sent.command[2] == 2]
    assert len(both) > 0.9 * HOUR / 16
    assert short.is_live()
    assert long.is_live()


def test_scripts_forgotten_by_the_server_are_sent_again() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a")
    port.server.loaded.clear()

    port.clock.advance(60)

    assert lease.is_live()
    assert [sent.command[0] for sent in port.log].count("EVAL") == 1


def test_lease_of_several_slots_is_renewed() -> None:
    _, port = new_lease_loop(cluster=True)
    lease = HeldLease(port, "a", "b")

    port.clock.advance(60)

    assert lease.is_live()
    assert all(port.server.left(key) > 5 for key in lease.claim.keys)


def test_wake_up_is_moved_to_an_earlier_due_time() -> None:
    lease_loop, port = new_lease_loop()
    long = HeldLease(port, "a", expire=150)
    port.clock.advance(7)
    rang_at = lease_loop.wakes_at

    short = HeldLease(port, "b", expire=1)
    port.clock.advance(60)

    assert rang_at > port.now() - 60 + 35
    assert short.is_live()
    assert long.is_live()


def test_lease_added_while_others_are_checked_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, port = new_lease_loop()
    port.latency = 0
    leases = [HeldLease(port, "a", expire=300)]

    next_look = TrackedLease.next_check

    def add_concurrently(watch: TrackedLease) -> tuple[float, float]:
        """Let another thread add a lease."""
        if len(leases) == 1 and port.now() > 1000:
            leases.append(HeldLease(port, "b", expire=1))
        return next_look(watch)

    monkeypatch.setattr(TrackedLease, "next_check", add_concurrently)
    port.clock.advance(200)

    assert len(leases) == 2
    assert leases[1].is_live()

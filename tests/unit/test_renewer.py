"""The renewer: leases last while their holders work; a loss is reported once and in time."""

import gc
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from support.simulated_loop import Kept, SimulatedLoop, keeping_port
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim_state import RELEASING
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.renewal.renewed_lease import TrackedLease
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators._rules.options import Options

HOUR = 3600.0
#: How far from its deadline a loss may be reported.
SOON = 0.05


def new_lease_loop(**server: Any) -> tuple[SimulatedLoop, SimulatedPort]:
    lease_loop = SimulatedLoop(Clock())
    return lease_loop, keeping_port(lease_loop, server=SimulatedServer(lease_loop.clock, **server))


def renewals(port: SimulatedPort) -> list[float]:
    """When renewals were sent."""
    return [sent.at for sent in port.log if sent.verb == "renew"]


def assert_reported_once_at_its_deadline(lease: Kept) -> None:
    ((at, _),) = lease.told
    assert abs(at - lease.claim.deadline) <= SOON


# Without faults


def test_granted_lock_gets_its_whole_lease_soon() -> None:
    _, port = new_lease_loop()
    claim = new_claim("a", expire=10)
    claim.identifier = "handed-over"
    claim.since, claim.entered = port.now() - 0.4, port.now()
    claim.set_term(claim.since, 2.5)
    port.server.put(claim.keys[0], claim.identifier, 2.1)
    lease = Kept(port, claim=claim, expire=10)
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

    when, grain = tracked.next_check()
    assert when - grain - lease_times.drift_margin(lasts) - 1e-9 <= tracked.first_check()
    assert tracked.first_check() <= when - grain


def test_connection_to_a_far_server_is_opened_before_the_first_renewal() -> None:
    _, port = new_lease_loop()
    port.latency = 0.5
    taken = port.now()
    lease = Kept(port, "a", expire=10)
    port.clock.advance(1)

    (prepared,) = [sent for sent in port.log if sent.command[0] == "EVAL" and sent.command[2] == 0]

    assert prepared.at < taken + 2
    port.clock.advance(9)
    assert lease.is_live()


@pytest.mark.parametrize(("latency", "options"), [(0.05, {}), (0.5, {"auto_renew": False})])
def test_no_connection_is_opened_early_unless_needed(
    latency: float, options: dict[str, Any]
) -> None:
    _, port = new_lease_loop()
    port.latency = latency
    Kept(port, "a", expire=10, **options)
    port.clock.advance(1)

    assert not [sent for sent in port.log if sent.command[2] == 0]


def test_lease_is_renewed_every_third_of_it_for_hours() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=30)
    before = port.now()

    for _ in range(3 * 3600):
        port.clock.advance(1)
        assert lease.is_live()
        assert port.server.value(lease.key) == lease.claim.identifier

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(port)])]
    assert all(10 - 1.3 <= gap <= 10.01 for gap in gaps)
    assert lease.told == []


@given(expire=st.floats(min_value=0.1, max_value=10_000), phase=st.floats(0, 1))
def test_lease_of_any_length_is_renewed_while_a_half_of_it_is_left(
    expire: float, phase: float
) -> None:
    lease_loop = SimulatedLoop(Clock(), phase=phase)
    port = keeping_port(lease_loop, server=SimulatedServer(lease_loop.clock))
    lease = Kept(port, "a", expire=expire)
    before = lease.claim.since

    port.clock.advance(expire * 5)

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(port)])]
    assert len(gaps) >= 14
    assert max(gaps) < expire / 2
    assert lease.is_live()


def test_leases_that_are_due_together_are_renewed_by_one_request() -> None:
    _, port = new_lease_loop()
    port.latency = 0
    leases = [Kept(port, f"lock {number}", expire=30) for number in range(300)]

    port.clock.advance(15)

    assert len(renewals(port)) == 1
    assert all(port.server.left(lease.key) > 20 for lease in leases)


def test_leases_acquired_at_different_times_are_renewed_together_later() -> None:
    _, port = new_lease_loop()
    leases = []
    for number in range(100):
        leases.append(Kept(port, f"lock {number}", expire=60))
        port.clock.advance(0.02)

    port.clock.advance(HOUR)

    assert len(renewals(port)) <= 2 * HOUR / 18
    assert all(lease.is_live() for lease in leases)


def test_leases_of_different_length_that_are_due_together_share_a_request() -> None:
    _, port = new_lease_loop()
    port.latency = 0
    short, long = Kept(port, "a", expire=24), Kept(port, "b", expire=48)

    port.clock.advance(HOUR)

    both = [sent for sent in port.log if sent.verb == "renew" and sent.command[2] == 2]
    assert len(both) > 0.9 * HOUR / 16
    assert short.is_live()
    assert long.is_live()


def test_scripts_forgotten_by_the_server_are_sent_again() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a")
    port.server.loaded.clear()

    port.clock.advance(60)

    assert lease.is_live()
    assert [sent.command[0] for sent in port.log].count("EVAL") == 1


def test_lease_of_several_slots_is_renewed() -> None:
    _, port = new_lease_loop(cluster=True)
    lease = Kept(port, "a", "b")

    port.clock.advance(60)

    assert lease.is_live()
    assert all(port.server.left(key) > 5 for key in lease.claim.keys)


def test_wake_up_is_moved_to_an_earlier_due_time() -> None:
    lease_loop, port = new_lease_loop()
    long = Kept(port, "a", expire=150)
    port.clock.advance(7)
    rang_at = lease_loop.wakes_at

    short = Kept(port, "b", expire=1)
    port.clock.advance(60)

    assert rang_at > port.now() - 60 + 35
    assert short.is_live()
    assert long.is_live()


def test_lease_added_while_others_are_checked_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, port = new_lease_loop()
    port.latency = 0
    leases = [Kept(port, "a", expire=300)]

    next_look = TrackedLease.next_check

    def hand_in(watch: TrackedLease) -> tuple[float, float]:
        """Another thread adds a lease meanwhile."""
        if len(leases) == 1 and port.now() > 1000:
            leases.append(Kept(port, "b", expire=1))
        return next_look(watch)

    monkeypatch.setattr(TrackedLease, "next_check", hand_in)
    port.clock.advance(200)

    assert len(leases) == 2
    assert leases[1].is_live()


# Unknown outcomes


@pytest.mark.parametrize("fate", [request_lost, reply_lost, swallowed, raising(OSError("no"))])
def test_lease_survives_an_outage_shorter_than_what_it_has_left(fate: Fate) -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.clock.advance(3)

    port.usual = fate
    port.clock.advance(4)
    port.usual = delivered
    port.clock.advance(HOUR)

    assert lease.is_live()
    assert lease.told == []


@pytest.mark.parametrize("fate", [request_lost, swallowed, raising(OSError("no"))])
def test_loss_by_an_outage_is_reported_once_at_the_deadline(fate: Fate) -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    deadline = lease.claim.deadline
    port.usual = fate

    port.clock.advance(HOUR)

    assert lease.claim.deadline == deadline
    assert_reported_once_at_its_deadline(lease)
    assert lease.claim.is_lost(port.now())
    assert "time ran out" in lease.told[0][1]
    assert lease_loop.wakes_at == math.inf


def test_renewal_is_retried_with_longer_and_longer_pauses_until_the_deadline() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.usual = request_lost

    port.clock.advance(20)

    tries = renewals(port)
    gaps = [later - at for at, later in itertools.pairwise(tries)]
    assert gaps[0] < 0.01, "an idle connection was stale: the first repetition is at once"
    assert 0.3 < max(gaps) < 1.0
    assert 10 < len(tries) < 30
    assert lease.claim.deadline - 1 < tries[-1] < lease.claim.deadline


def test_pauses_start_again_after_a_success() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
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
    lease = Kept(port, "a", expire=10)
    port.usual = paused(HOUR)  # the reply arrives very late

    port.clock.advance(60)
    told = list(lease.told)
    port.clock.advance(2 * HOUR)

    assert len(renewals(port)) == 1
    assert_reported_once_at_its_deadline(lease)
    assert lease.told == told


def test_renewal_answered_after_the_deadline_does_not_undo_the_loss() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    deadline = lease.claim.deadline
    port.faults = [paused(8)]

    port.clock.advance(11.5)

    assert port.server.left(lease.key) > 0, "it was renewed there"
    assert lease.claim.deadline == deadline
    assert lease.claim.is_lost(port.now())
    assert len(lease.told) == 1
    assert len(lease_loop.renewer) == 0


def test_renewal_in_time_that_is_read_too_late_is_a_loss() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    deadline = lease.claim.deadline
    while not renewals(port):
        port.clock.advance(0.0005)

    lease_loop.stand_still(9)
    port.clock.advance(9.5)

    assert port.server.value(lease.key) is not None
    assert lease.claim.deadline == deadline
    assert len(lease.told) == 1


def test_stopped_process_reports_the_loss_as_soon_as_it_continues() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)

    lease_loop.stand_still(100)
    port.clock.advance(99)
    reported_before = list(lease.told)
    port.clock.advance(2)

    assert reported_before == []
    assert len(lease.told) == 1
    assert renewals(port) == []


def test_slow_renewal_counts_from_its_send_time() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.usual = slow(2)

    port.clock.advance(5.5)

    (sent,) = renewals(port)
    assert lease.claim.deadline == pytest.approx(sent + 10 - 0.102)


def test_outage_of_one_client_does_not_delay_the_renewals_of_another() -> None:
    lease_loop, sick = new_lease_loop()
    sound = keeping_port(lease_loop, server=SimulatedServer(lease_loop.clock))
    leases = [Kept(port, "a", expire=10) for port in (sick, sound)]
    sick.usual = swallowed
    before = lease_loop.now()

    lease_loop.clock.advance(60)

    gaps = [later - at for at, later in itertools.pairwise([before, *renewals(sound)])]
    assert max(gaps) < 3.4
    assert_reported_once_at_its_deadline(leases[0])
    assert "time ran out" in leases[0].told[0][1], "the other server was not asked"
    assert leases[1].is_live()


def test_failing_node_of_a_cluster_does_not_affect_leases_on_others() -> None:
    _, port = new_lease_loop(cluster=True)
    sick, sound = Kept(port, "a", expire=10), Kept(port, "b", expire=10)
    assert slot_of(sick.key) != slot_of(sound.key)
    port.usual = lambda request: (swallowed if sick.key in request.command else delivered)(request)

    for _ in range(600):
        port.clock.advance(0.1)
        assert sound.is_live()

    assert_reported_once_at_its_deadline(sick)
    assert sound.told == []


# Loss


@pytest.mark.parametrize(
    ("holder", "why"), [("another-identifier", "another-…"), (None, "its key is gone")]
)
def test_lost_key_is_reported_with_its_holder(holder: str | None, why: str) -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.server.drop(lease.key)
    if holder is not None:
        port.server.put(lease.key, holder, 60)

    port.clock.advance(3.4)

    ((_, told),) = lease.told
    assert why in told
    assert not lease.is_live()
    assert port.held == {}
    assert len(lease_loop.renewer) == 0


def test_key_of_another_holder_is_unchanged() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.server.put(lease.key, "another", 60)

    port.clock.advance(59)

    assert port.server.value(lease.key) == "another"
    assert port.server.left(lease.key) == pytest.approx(1)
    assert len(renewals(port)) == 1


def test_lost_lease_does_not_affect_the_others_of_its_request() -> None:
    _, port = new_lease_loop()
    leases = [Kept(port, name, expire=10) for name in "abc"]
    port.server.drop(leases[1].key)

    port.clock.advance(HOUR)

    assert [len(lease.told) for lease in leases] == [0, 1, 0]
    assert [lease.is_live() for lease in leases] == [True, False, True]


def test_lost_lease_is_not_acquired_again() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.server.drop(lease.key)

    port.clock.advance(HOUR)

    assert port.server.value(lease.key) is None


# The end


def release_keys(lease: Kept) -> None:
    lease.port.renewer.remove(lease.watch)
    run(release(lease.port, lease.claim, "script"))


def release_in_vain(lease: Kept) -> None:
    lease.port.renewer.remove(lease.watch)
    lease.claim.state = RELEASING


def report_lost(lease: Kept) -> None:
    lease.claim.lost_reason = "reported by a release"


@pytest.mark.parametrize("end", [release_keys, release_in_vain, report_lost])
@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_that_is_over_is_not_renewed(end: Any, after: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=30)
    port.clock.advance(after)

    end(lease)
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert port.server.value(lease.key) is None
    assert lease.told == []
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_that_was_garbage_collected_is_not_renewed(after: float) -> None:
    lease_loop, port = new_lease_loop()
    leases = [Kept(port, "a", expire=30)]
    key = leases[0].key
    port.clock.advance(after)

    leases.clear()
    gc.collect()
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert port.server.value(key) is None
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


@pytest.mark.parametrize("after", [0, 1, 200.0])
def test_lease_that_is_no_longer_renewed_is_reported_lost_at_its_deadline(after: float) -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=30)
    port.clock.advance(after)

    lease.last_no_longer()
    before = len(renewals(port))
    port.clock.advance(31)

    assert len(renewals(port)) == before
    assert_reported_once_at_its_deadline(lease)
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_lease_released_during_its_renewal_remains_released() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.faults = [paused(1)]
    while not renewals(port):
        port.clock.advance(0.1)

    release_keys(lease)
    port.clock.advance(60)

    assert port.server.value(lease.key) is None
    assert lease.told == []
    assert len(renewals(port)) == 1
    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_loop_has_no_wake_up_after_the_last_lease() -> None:
    lease_loop, port = new_lease_loop()
    leases = [Kept(port, name, expire=expire) for name, expire in [("a", 10), ("b", 60), ("c", 1)]]
    port.clock.advance(100)

    for lease in leases:
        release_keys(lease)
    port.clock.advance(60)

    assert (len(lease_loop.renewer), lease_loop.wakes_at) == (0, math.inf)


def test_renewer_renews_again_after_it_was_idle() -> None:
    lease_loop, port = new_lease_loop()
    release_keys(Kept(port, "a"))
    port.clock.advance(60)
    idle = lease_loop.wakes_at

    lease = Kept(port, "a")
    port.clock.advance(60)

    assert idle == math.inf
    assert lease.is_live()


def test_lease_released_immediately_is_not_checked() -> None:
    lease_loop, port = new_lease_loop()

    lease = Kept(port, "a")
    lease_loop.renewer.remove(lease.watch)

    assert len(lease_loop.renewer) == 0


def test_lease_without_renewal_is_reported_lost_at_its_deadline() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10, auto_renew=False)

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
    lease = Kept(port, "a", expire=expire, max_hold=max_hold)
    first, last = lease.claim.since + max_hold, lease.claim.entered + max_hold

    port.clock.advance(max_hold + 1)

    ((at, why),) = lease.told
    assert first - 0.01 * min(expire, max_hold) - 0.02 <= at <= last
    assert lease.claim.deadline <= last
    assert "max_hold" in why
    assert port.server.value(lease.key) is None
    assert len(lease_loop.renewer) == 0


def test_renewal_that_starts_late_does_not_exceed_max_hold() -> None:
    lease_loop, port = new_lease_loop()
    lease = Kept(port, "a", expire=10, max_hold=16)
    lease_loop.lag = 2  # the event loop is busy with something else

    port.clock.advance(60)

    assert renewals(port) != []
    assert lease.claim.deadline <= lease.claim.since + 16


# Extensions by the holder


def test_long_extension_postpones_the_next_renewal() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.clock.advance(1)
    run(extend(port, lease.claim, 100))
    extended = port.now()

    port.clock.advance(HOUR)

    assert 90 < renewals(port)[0] - extended < 97
    assert lease.is_live()
    assert lease.told == []


def test_extended_lease_without_renewal_is_reported_lost_at_its_new_deadline() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10, auto_renew=False)
    run(extend(port, lease.claim, 100))

    port.clock.advance(HOUR)

    assert lease.told[0][0] > 1090
    assert_reported_once_at_its_deadline(lease)


def test_extension_while_a_renewal_is_under_way_is_not_undone() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.faults = [paused(1)]
    while not renewals(port):
        port.clock.advance(0.1)
    run(extend(port, lease.claim, 100))
    deadline = lease.claim.deadline

    port.clock.advance(2)

    assert lease.claim.deadline == deadline


def test_no_second_renewal_is_sent_while_one_hangs_though_the_lease_was_extended() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=10)
    port.faults = [paused(15)]
    port.clock.advance(4)
    run(extend(port, lease.claim, 10))

    port.clock.advance(8)  # past the first deadline, when the next renewal is due

    assert len(renewals(port)) == 1
    assert lease.is_live()


def test_lease_shortened_by_its_holder_is_renewed_in_time() -> None:
    _, port = new_lease_loop()
    lease = Kept(port, "a", expire=60)
    run(adjust(port, lease.claim, lambda left: 3))
    port.renewer.add(lease.watch)

    port.clock.advance(60)

    assert lease.told == []
    assert lease.is_live()

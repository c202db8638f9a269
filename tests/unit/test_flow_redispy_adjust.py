"""The replacement of redis-py's ``Lock``: moves of the end of a lease."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from support.faults import (
    Fate,
    Request,
    delayed,
    delivered,
    paused,
    refused,
    reply_lost,
    request_lost,
)
from support.redispy_requests import KEY, excess, lasts, more
from support.simulated_loop import HeldLease, SimulatedLoop, renewing_port
from support.simulation import SimulatedPort, acquired, new_claim, shortened

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.redispy_lock import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError


@pytest.mark.parametrize("nearer", [0.017, 0.0015])
@pytest.mark.parametrize("expire", [0.15, 0.3, 1.0])
def test_late_copy_of_a_move_distinguishes_close_ends(expire: float, nearer: float) -> None:
    port = SimulatedPort()
    port.latency = 0.0001
    claim = acquired(port, "a", expire=expire)
    port.clock.advance(0.004)
    port.faults = [None, delayed(expire / 3)]
    run(adjust(port, claim, lasts(expire - nearer)))
    port.clock.advance(0.002)
    run(adjust(port, claim, lasts(expire)))

    port.clock.advance(expire / 2)

    assert excess(port, claim) <= 0


def test_move_back_is_not_changed_by_a_late_copy_of_the_first_move() -> None:
    port = SimulatedPort()
    port.latency = 0.0
    claim = acquired(port, "a", expire=10)
    first = port.server.end(KEY)
    port.faults = [None, delayed(2)]
    run(adjust(port, claim, lasts(3)))
    run(adjust(port, claim, lasts(10)))  # in the same millisecond

    port.clock.advance(2.5)

    assert port.server.end(KEY) in (first, first + 1)
    assert excess(port, claim) <= 0


@pytest.mark.parametrize("fate", [reply_lost, request_lost, delayed(0.5), refused])
def test_end_is_moved_once_whatever_is_lost(fate: Fate) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, fate]

    run(adjust(port, claim, more(10)))

    assert port.server.left(KEY) == pytest.approx(40, abs=5.1)
    assert excess(port, claim) <= 0


def test_two_callers_that_add_the_same_time_both_add_it() -> None:
    def added_by_another(request: Request) -> Any:
        seen, wanted = request.command[-3:-1]
        port.server.put(KEY, claim.identifier, port.server.left(KEY) + (wanted - seen) / 1000)
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=10)
    port.faults = [None, added_by_another]

    run(adjust(port, claim, more(5)))

    assert port.server.left(KEY) == pytest.approx(20, abs=0.01)


def test_earlier_end_of_unknown_outcome_applies_immediately() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults, port.usual = [delivered, reply_lost], request_lost

    with pytest.raises(Disconnected):
        run(adjust(port, claim, lasts(8)))

    assert claim.is_live(port.now())
    assert excess(port, claim) <= 0


def test_earlier_end_applies_while_its_reply_is_under_way() -> None:
    seen: list[float] = []

    def checked_during_request(request: Request) -> Any:
        reply = request.execute()
        seen.append(excess(port, claim))
        return port.received(reply)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, checked_during_request]

    run(adjust(port, claim, lasts(2)))

    assert seen[0] <= 0


def test_renewal_answered_before_a_late_move_does_not_override_it() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=200)
    port.faults, port.usual = [delivered, delayed(4.9)], refused
    sent = port.now()
    with pytest.raises(Disconnected):
        run(adjust(port, claim, lasts(7)))
    port.usual = delivered
    claim.prolong(sent + 0.1, 60)  # the key had 200 s then, so the reply was yes

    port.clock.advance(1)

    assert port.server.left(KEY) < 7
    assert excess(port, claim) <= 0


def test_move_that_arrives_after_its_time_limit_changes_nothing() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=200)
    port.faults, port.usual = [delivered, delayed(20)], request_lost
    with pytest.raises(Disconnected):
        run(adjust(port, claim, lasts(60)))

    port.clock.advance(30)

    assert port.server.left(KEY) > 100


def test_reply_to_an_older_renewal_does_not_undo_an_earlier_end() -> None:
    lease_loop = SimulatedLoop(SimulatedPort().clock)
    port = renewing_port(lease_loop)
    lease_loop.clock = port.clock
    lease = HeldLease(port, "a", expire=30)
    port.faults = [paused(3)]  # run immediately, but the reply arrives three seconds later
    port.clock.advance(11)
    run(adjust(port, lease.claim, lasts(5)))
    port.renewer.add(lease.watch)

    port.clock.advance(0.5)

    assert excess(port, lease.claim) <= 0
    port.clock.advance(20)
    assert lease.notifications == []


def test_only_renewals_sent_after_the_move_prolong() -> None:
    claim = new_claim("a", expire=30)
    claim.mark_held(100.0)

    claim.confirm_shortened(shortened(claim, 110.0, 104.0, 2.0), 105.0)
    claim.prolong(104.5, 30.0)
    claim.prolong(105.0, 30.0)

    assert claim.deadline < 106
    claim.prolong(105.1, 30.0)
    assert claim.deadline > 134


def extending_concurrently(port: SimulatedPort, claim: Claim, seconds: float) -> Fate:
    """Another thread moves the end after a request was run, before its reply is known."""

    def moved_during_request(request: Request) -> Any:
        reply = request.execute()
        run(adjust(port, claim, lasts(seconds)))
        return port.received(reply)

    return moved_during_request


@pytest.mark.parametrize(("one", "other"), [(40, 3), (20, 3), (20, 5)])
def test_second_earlier_end_applies_before_the_first_move_is_answered(
    one: float, other: float
) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, extending_concurrently(port, claim, other)]

    run(adjust(port, claim, lasts(one)))

    assert excess(port, claim) <= 0
    assert port.server.left(KEY) < other


def test_earlier_end_applies_though_another_move_is_answered() -> None:
    """Of two concurrent moves to earlier ends, the earliest applies until both are answered."""
    seen: list[float] = []

    def checked_during_request(request: Request) -> Any:
        run(adjust(port, claim, lasts(20)))
        seen.append(claim.deadline - port.now())
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, checked_during_request]

    run(adjust(port, claim, lasts(2)))

    assert seen[0] <= 2
    assert excess(port, claim) <= 0


def test_lock_whose_end_was_not_moved_after_all_is_renewed_again() -> None:
    def renewed_and_moved(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 40)
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, renewed_and_moved]

    run(adjust(port, claim, lambda left: 10 if left < 35 else 50))

    assert claim.deadline - port.now() > 40
    assert excess(port, claim) <= 0


def test_records_about_an_end_that_is_moved_often_remain_few() -> None:
    claim = new_claim("a", expire=30)
    claim.mark_held(100.0)

    for time in range(101, 200):
        claim.confirm_shortened(shortened(claim, time + 10.0, time, 5.0), time + 0.1)
        claim.add_end(time + 0.5, 20.0)

    assert claim.deadline == pytest.approx(219.5, abs=0.3)
    assert len(claim.ends.given) <= 2
    assert len(claim.ends.shortenings) <= 2


@pytest.mark.parametrize("verb", ["time_left", "adjust"])
def test_move_that_a_release_overtakes_is_no_loss(verb: str) -> None:
    def released_during_request(request: Request) -> Any:
        run(release(port, claim))
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = (
        [released_during_request] if verb == "time_left" else [None, released_during_request]
    )

    with pytest.raises(LockNotOwnedError) as caught:
        run(adjust(port, claim, lasts(10)))

    assert not isinstance(caught.value, LockLostError)
    assert claim.lost_reason is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_renewed_lock_is_not_lost_by_an_interrupted_move_to_an_earlier_end(when: str) -> None:
    """The move is completed, so that renewals know from when on they prolong the lease."""

    def interrupted(request: Any) -> Any:
        if when == "after":
            delivered(request)
        raise KeyboardInterrupt

    port = renewing_port()
    lease = HeldLease(port, "a", expire=30)
    port.clock.advance(1)
    port.faults = [None, interrupted]

    with pytest.raises(KeyboardInterrupt):
        run(adjust(port, lease.claim, lambda left: 2.0))
    port.renewer.add(lease.watch)  # as ``extend`` does in any case
    port.clock.advance(20)

    assert lease.notifications == []
    assert lease.claim.is_live(port.now())
    assert port.server.value(lease.key) == lease.claim.identifier

"""What the replacement of redis-py's ``Lock`` adds: moved ends, no expiry, tokens of the caller."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from support.simulated_loop import HeldLease, SimulatedLoop, renewing_port
from support.simulated_queue import QueuePort, SimulatedProcess
from support.simulated_server import Clock, SimulatedServer
from support.simulation import SimulatedPort, acquired, new_claim

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.redispy_lock import PROVISIONAL, AcquireRequest, acquire, release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import with_notes, with_queue
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError

KEY = b"sys:lock:a"


def lasts(seconds: float) -> Callable[[float], float]:
    return lambda left: seconds


def more(seconds: float) -> Callable[[float], float]:
    return lambda left: left + seconds


def request(
    token: str | None = None, *, endless: bool = False, expire: float = PROVISIONAL
) -> AcquireRequest:
    return AcquireRequest(new_claim("a", expire=expire), 0.0, 0.1, token, endless)


def of_token(token: str) -> Claim:
    """The claim that ``lock.local.token = token`` makes."""
    return claim_on(KEY, PROVISIONAL, token)


def believed(port: SimulatedPort, claim: Claim) -> float:
    """By how many seconds the holder's deadline exceeds the server's end."""
    return claim.deadline - port.now() - port.server.left(KEY)


# Ends that move


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

    assert believed(port, claim) <= 0


def test_move_back_is_not_changed_by_a_late_copy_of_the_first_move() -> None:
    port = SimulatedPort()
    port.latency = 0.0
    claim = acquired(port, "a", expire=10)
    first = port.server._end(KEY)
    port.faults = [None, delayed(2)]
    run(adjust(port, claim, lasts(3)))
    run(adjust(port, claim, lasts(10)))  # in the same millisecond

    port.clock.advance(2.5)

    assert port.server._end(KEY) in (first, first + 1)
    assert believed(port, claim) <= 0


@pytest.mark.parametrize("fate", [reply_lost, request_lost, delayed(0.5), refused])
def test_end_is_moved_once_whatever_is_lost(fate: Fate) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, fate]

    run(adjust(port, claim, more(10)))

    assert port.server.left(KEY) == pytest.approx(40, abs=5.1)
    assert believed(port, claim) <= 0


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
    assert believed(port, claim) <= 0


def test_earlier_end_applies_while_its_reply_is_under_way() -> None:
    seen: list[float] = []

    def looked_at(request: Request) -> Any:
        reply = request.execute()
        seen.append(believed(port, claim))
        return port.received(reply)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, looked_at]

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
    assert believed(port, claim) <= 0


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

    assert believed(port, lease.claim) <= 0
    port.clock.advance(20)
    assert lease.notifications == []


def test_only_renewals_sent_after_the_move_prolong() -> None:
    claim = new_claim("a", expire=30)
    claim.mark_held(100.0)

    claim.confirm_shortened(claim.shorten(110.0, 104.0, 2.0), 105.0)
    claim.prolong(104.5, 30.0)
    claim.prolong(105.0, 30.0)

    assert claim.deadline < 106
    claim.prolong(105.1, 30.0)
    assert claim.deadline > 134


def extending_concurrently(port: SimulatedPort, claim: Claim, seconds: float) -> Fate:
    """Another thread moves the end after a request was run, before its reply is known."""

    def moved_meanwhile(request: Request) -> Any:
        reply = request.execute()
        run(adjust(port, claim, lasts(seconds)))
        return port.received(reply)

    return moved_meanwhile


@pytest.mark.parametrize(("one", "other"), [(40, 3), (20, 3), (20, 5)])
def test_second_earlier_end_applies_before_the_first_move_is_answered(
    one: float, other: float
) -> None:
    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, extending_concurrently(port, claim, other)]

    run(adjust(port, claim, lasts(one)))

    assert believed(port, claim) <= 0
    assert port.server.left(KEY) < other


def test_earlier_end_applies_though_another_move_is_answered() -> None:
    """Of two concurrent moves to earlier ends, the earliest applies until both are answered."""
    seen: list[float] = []

    def looked_at(request: Request) -> Any:
        run(adjust(port, claim, lasts(20)))
        seen.append(claim.deadline - port.now())
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, looked_at]

    run(adjust(port, claim, lasts(2)))

    assert seen[0] <= 2
    assert believed(port, claim) <= 0


def test_lock_whose_end_was_not_moved_after_all_is_renewed_again() -> None:
    def renewed_and_moved(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 40)
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [None, renewed_and_moved]

    run(adjust(port, claim, lambda left: 10 if left < 35 else 50))

    assert claim.deadline - port.now() > 40
    assert believed(port, claim) <= 0


def test_records_about_an_end_that_is_moved_often_remain_few() -> None:
    claim = new_claim("a", expire=30)
    claim.mark_held(100.0)

    for time in range(101, 200):
        claim.confirm_shortened(claim.shorten(time + 10.0, time, 5.0), time + 0.1)
        claim.add_end(time + 0.5, 20.0)

    assert claim.deadline == pytest.approx(219.5, abs=0.3)
    assert len(claim.ends.given) <= 2
    assert len(claim.ends.shortenings) <= 2


@pytest.mark.parametrize("verb", ["time_left", "adjust"])
def test_move_that_a_release_overtakes_is_no_loss(verb: str) -> None:
    def released_meanwhile(request: Request) -> Any:
        run(release(port, claim))
        return delivered(request)

    port = SimulatedPort()
    claim = acquired(port, "a", expire=30)
    port.faults = [released_meanwhile] if verb == "time_left" else [None, released_meanwhile]

    with pytest.raises(LockNotOwnedError) as caught:
        run(adjust(port, claim, lasts(10)))

    assert not isinstance(caught.value, LockLostError)
    assert claim.lost_reason is None


# The final form


@pytest.mark.parametrize("token", [None, "T"])
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("fate", [delivered, reply_lost, request_lost, refused])
def test_lock_gets_its_final_form(token: str | None, endless: bool, fate: Fate) -> None:
    port = SimulatedPort()
    asked = request(token, endless=endless)
    port.faults = [None, fate]

    assert run(acquire(port, asked))

    assert port.server.value(KEY) == (token or asked.claim.identifier)
    assert (port.server.left(KEY) == math.inf) is endless
    run(release(port, asked.claim))
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("token", [None, "T"])
def test_final_form_costs_one_round_trip(token: str | None) -> None:
    port = SimulatedPort()

    run(acquire(port, request(token, endless=True)))

    assert port.verbs == ["acquire", "settle"]


@pytest.mark.parametrize("token", [None, "T"])
@pytest.mark.parametrize("late", [(0.2, 0.3), (3.0, 3.5), (9.0, 9.0), (14.0, 15.0)])
def test_late_copies_of_acquire_and_settle_lock_nothing_indefinitely(
    token: str | None, late: tuple[float, float]
) -> None:
    port = SimulatedPort()
    asked = request(token, endless=True)
    port.faults = [delayed(late[0]), None, delayed(late[1])]
    run(acquire(port, asked))
    port.clock.advance(0.05)
    run(release(port, asked.claim))

    port.clock.advance(late[1] + PROVISIONAL)

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("expire", [2.0, 5.0])
def test_process_that_holds_with_its_own_token_is_no_suspect(expire: float) -> None:
    server, entered = SimulatedServer(Clock()), []
    processes = [SimulatedProcess(server, number) for number in range(2)]

    async def holds(process: SimulatedProcess, number: int) -> None:
        queueing: Any = QueuePort(process)
        asked = AcquireRequest(claim_on(KEY, expire), 60.0, 0.1, f"T{number}", False)
        assert await acquire(queueing, asked)
        entered.append(number)
        await process.lease_loop.pause(0.3)
        await release(queueing, asked.claim)

    for number in range(12):
        processes[number % 3 // 2].lease_loop.start(holds(processes[number % 3 // 2], number))
        server.clock.advance(0.05)
    for _ in range(600):
        server.clock.advance(0.01)
        assert not any("suspect" in fact for fact in server.members(with_queue((KEY,))[2]))

    assert entered == list(range(12))
    assert [process.lease_loop.failures for process in processes] == [[], []]


def test_lock_with_a_later_unknown_end_is_settled_with_its_real_end() -> None:
    def server_clock_set_forward(request: Request) -> Any:
        port.server.stepped += 3600.0
        port.server.put(KEY, asked.claim.identifier, PROVISIONAL)
        return delivered(request)

    port = SimulatedPort()
    asked = request(endless=True)
    port.faults = [None, server_clock_set_forward]

    assert run(acquire(port, asked))

    assert port.verbs == ["acquire", "settle", "settle"]
    assert port.server.left(KEY) == math.inf


def test_final_form_is_set_though_the_slot_of_the_lock_begins_to_move() -> None:
    server = SimulatedServer(Clock())
    holder, process = SimulatedProcess(server, 0).acquire(), SimulatedProcess(server, 1)
    asked = AcquireRequest(claim_on(KEY, 2.0), 60.0, 0.1, "T", False)

    def torn(request: Request) -> Any:
        server.is_torn = True
        return delivered(request)

    async def takes() -> None:
        queueing: Any = QueuePort(process)
        assert await acquire(queueing, asked)

    process.lease_loop.start(takes())
    server.clock.advance(0.1)
    process.port.faults = [torn]
    holder.release()
    server.clock.advance(0.1)

    assert process.lease_loop.failures == []
    assert process.port.verbs[-2:] == ["settle", "settle"]
    assert server.value(KEY) == "T"


# A token of the caller


def test_token_of_the_caller_releases_its_lock_after_a_refusal() -> None:
    port = SimulatedPort()
    claim = of_token("T")
    with pytest.raises(LockLostError):
        run(adjust(port, claim, more(1)))
    port.server.put(KEY, "T", 3)

    run(release(port, claim))

    assert port.server.value(KEY) is None


def test_token_of_the_caller_extends_its_lock_after_a_refusal() -> None:
    port = SimulatedPort()
    claim = of_token("T")
    with pytest.raises(LockLostError):
        run(adjust(port, claim, more(1)))
    port.server.put(KEY, "T", 3)

    run(adjust(port, claim, more(1)))

    assert port.server.left(KEY) == pytest.approx(4, abs=0.01)


def test_lock_that_was_lost_once_remains_lost() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")
    port.server.drop(KEY)
    with pytest.raises(LockLostError):
        run(adjust(port, claim, more(1)))
    port.server.put(KEY, claim.identifier, 3)

    with pytest.raises(LockLostError):
        run(release(port, claim))


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("may_resend", [False, True])
def test_reused_token_is_notified_that_its_lock_was_lost(
    may_resend: bool, endless: bool, queued: bool
) -> None:
    port = SimulatedPort(may_resend=may_resend)
    first, second = request("worker", endless=endless), request("worker", endless=endless)
    assert run(acquire(port, first))
    run(release(port, first.claim))
    if queued:  # then the release is recorded with every client
        port.server._stored[with_notes((KEY,))[3]] = ({first.claim.releaser: 1}, math.inf)
    assert run(acquire(port, second))
    port.server.put(KEY, "external", 10)

    with pytest.raises(LockNotOwnedError):
        run(release(port, second.claim))

    assert port.server.value(KEY) == "external"


@pytest.mark.parametrize("fate", [reply_lost, request_lost, delivered])
def test_repeated_release_by_a_token_is_no_loss(fate: Fate) -> None:
    port = SimulatedPort(may_resend=True)
    for _ in range(3):
        asked = request("worker")
        assert run(acquire(port, asked))
        port.faults = [fate]

        run(release(port, asked.claim))

        assert port.server.value(KEY) is None

"""Locks whose slot is moving: for some time scripts cannot use several keys of the slot."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError, ResponseError
from support.faults import delivered, raising, reply_lost, resent, slow
from support.simulated_queue import SimulatedProcess
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, new_claim

from redis_lock_decorators._flow import redispy_lock
from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.renewal.batch import Renewal, renew
from redis_lock_decorators._flow.requests import cancel
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import slot_of, with_queue
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockError, LockLostError
from redis_lock_decorators.testing.fake.commands import Commands

KEYS = b"sys:lock:{a}", b"sys:lock:{a}b"


@pytest.fixture
def port() -> Any:
    server = SimulatedServer(Clock(), cluster=True, natives=["DELIFEQ"])
    return SimulatedPort(server, may_resend=True)


@pytest.mark.parametrize("method", ["script", "native"])
@pytest.mark.parametrize("names", [["{a}"], ["{a}", "{a}b"], ["{a}", "c"]])
def test_lock_is_released_key_by_key(port: Any, method: ReleaseMethod, names: list[str]) -> None:
    claim = acquired(port, *names)
    port.server.is_slot_moving = True

    run(release(port, claim, method))

    assert [port.server.value(key) for key in claim.keys] == [None] * len(names)


@pytest.mark.parametrize("may_resend", [False, True])
@pytest.mark.parametrize("replied", [True, False])
def test_release_that_fails_between_two_keys_is_no_loss(
    port: Any, may_resend: bool, replied: bool
) -> None:
    def interrupted(request: Any) -> Any:
        port.server.is_slot_moving = False
        if replied:
            raise ReadOnlyError("READONLY You can't write against a read only replica.")
        return reply_lost(request)

    port.may_resend = may_resend
    claim = acquired(port, "{a}", "{a}b")
    reads = ["extend"] * may_resend  # a client that repeats requests asks first
    faults = [None, *[None for _ in reads], None, *[None for _ in reads], interrupted]
    port.server.is_slot_moving, port.faults = True, faults

    run(release(port, claim, "script"))

    assert port.verbs == ["release", *reads, "unlock", *reads, "unlock", "release"]
    assert [port.server.value(key) for key in KEYS] == [None, None]


def test_keys_released_by_a_failed_acquisition_are_released_again(port: Any) -> None:
    names = map(str, range(1000))
    later = next(one for one in names if slot_of(f"sys:lock:{one}".encode()) > slot_of(KEYS[0]))
    claim = new_claim("{a}", "{a}b", later)
    other = SimulatedPort(port.server)
    held = acquired(other, later)

    def torn_afterwards(request: Any) -> Any:
        reply = delivered(request)
        port.server.is_slot_moving = True
        return reply

    def mend() -> None:
        port.server.is_slot_moving = False
        run(release(other, held, "script"))

    port.faults = [None, torn_afterwards]
    port.clock.at(port.now() + 0.05, mend)
    assert run(acquire(port, claim, 5, 0.1)) is None
    assert port.verbs.count("unlock") == 3

    run(release(port, claim, "script"))

    assert [port.server.value(key) for key in claim.keys] == [None] * 3


@pytest.mark.parametrize("holder", [None, "another"])
@pytest.mark.parametrize("lost", KEYS)
@pytest.mark.parametrize("may_resend", [False, True])
def test_loss_is_reported(port: Any, holder: str | None, lost: bytes, may_resend: bool) -> None:
    port.may_resend = may_resend
    claim = acquired(port, "{a}", "{a}b")
    port.server.drop(lost)
    if holder is not None:
        port.server.put(lost, holder, 60)
    port.server.is_slot_moving = True

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert [port.server.value(key) for key in KEYS] == [
        holder if key == lost else None for key in KEYS
    ]


@pytest.mark.parametrize("has_moved", [False, True])
def test_repeated_release_leaves_the_next_holder_with_the_same_identifier(
    port: Any, has_moved: bool
) -> None:
    claim = acquired(port, "{a}")
    claim.shares_identifier = True

    def lost(request: Any) -> Any:
        try:
            return reply_lost(request)
        finally:
            port.server.is_slot_moving = not has_moved
            port.server.put(KEYS[0], claim.identifier, 60)

    port.server.is_slot_moving, port.faults = True, [None, None, None, lost]

    with pytest.raises(LockError, match="was released is not known"):
        run(release(port, claim, "script"))

    assert port.verbs == ["release", "time_left", "extend", "unlock"]
    assert port.server.value(KEYS[0]) == claim.identifier


def test_late_copy_of_a_release_leaves_the_next_holder_with_the_same_identifier(port: Any) -> None:
    claim, copies = acquired(port, "{a}"), []
    claim.shares_identifier = True

    def copied(request: Any) -> Any:
        copies.append(request)
        return delivered(request)

    port.server.is_slot_moving, port.usual = True, copied
    run(release(port, claim, "script"))
    assert port.server.value(KEYS[0]) is None
    port.clock.advance(1)
    port.server.put(KEYS[0], claim.identifier, 60)

    for request in copies:
        with contextlib.suppress(ResponseError):
            request.execute()

    assert "unlock" in port.verbs
    assert port.server.value(KEYS[0]) == claim.identifier


def test_release_follows_an_end_that_a_renewal_moves(port: Any) -> None:
    claim = acquired(port, "{a}")
    claim.shares_identifier = True

    def moved(request: Any) -> Any:
        port.server.put(KEYS[0], claim.identifier, 60)
        return delivered(request)

    port.server.is_slot_moving, port.faults = True, [None, None, None, moved]

    run(release(port, claim, "script"))

    assert port.verbs.count("unlock") == 2
    assert port.server.value(KEYS[0]) is None


@pytest.mark.parametrize("is_run", [False, True])
def test_script_that_empties_a_key_of_a_moving_slot_is_followed_by_another(
    port: Any, is_run: bool
) -> None:
    """Its next use of that key fails, before or after it has granted the lock to a waiter."""

    def cut(request: Any) -> Any:
        if is_run:
            request.execute()
            port.server.put(KEYS[0], "the waiter", 60)
        raise ResponseError("ERR Script attempted to access a non local key in a cluster node")

    claim = acquired(port, "{a}")
    port.faults = [cut]

    run(release(port, claim, "script"))

    assert port.server.value(KEYS[0]) == ("the waiter" if is_run else None)


def test_late_release_leaves_the_next_holder_with_the_same_token(port: Any) -> None:
    claims = []
    for _ in range(2):
        asked = redispy_lock.AcquireRequest(claim_on(KEYS[0], 6), 0.0, 0.1, "T", False)
        asked.claim.shares_identifier = True
        assert run(redispy_lock.acquire(port, asked))
        claims.append(asked.claim)
        port.clock.advance(7 if len(claims) == 1 else 1)
    port.server.is_slot_moving = True

    with pytest.raises(LockLostError):
        run(redispy_lock.release(port, claims[0]))
    assert port.server.value(KEYS[0]) == "T"

    run(redispy_lock.release(port, claims[1]))
    assert port.server.value(KEYS[0]) is None


def test_release_that_the_client_sends_twice_is_no_loss(port: Any) -> None:
    def usual(request: Any) -> Any:
        return (resent if port.verbs[-1] == "unlock" else delivered)(request)

    claim = acquired(port, "{a}", "{a}b")
    port.server.is_slot_moving, port.usual = True, usual

    run(release(port, claim, "script"))

    assert [port.server.value(key) for key in KEYS] == [None, None]


@pytest.mark.parametrize("names", [["{a}"], ["{a}", "{a}b"]])
@pytest.mark.parametrize("min_hold", [0, 5])
@pytest.mark.parametrize("next_holder", [None, "another"])
def test_slot_begins_to_move_before_the_client_repeats_a_release(
    port: Any, names: list[str], min_hold: float, next_holder: str | None
) -> None:
    def torn_before_the_copy(request: Any) -> Any:
        request.execute()
        if next_holder is not None:
            port.server.put(KEYS[0], next_holder, 60)
        port.server.is_slot_moving = True
        return delivered(request)

    claim = acquired(port, *names)
    claim.held_until = port.now() + min_hold
    port.faults = [torn_before_the_copy]

    run(release(port, claim, "script"))

    assert port.server.value(KEYS[0]) != claim.identifier


@pytest.mark.parametrize("error", ["NOPERM no permissions", "WRONGTYPE other data"])
def test_loss_is_reported_without_a_record_that_can_be_read(port: Any, error: str) -> None:
    claim = acquired(port, "{a}")
    port.server.drop(KEYS[0])
    port.server.is_slot_moving = True
    unreadable = raising(ResponseError(error))
    port.faults = [None, None, None, unreadable]

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert port.verbs == ["release", "extend", "unlock", "ZSCORE"]


def test_lock_acquired_after_leaving_its_queue_is_released_and_can_be_lost(port: Any) -> None:
    claim = acquired(port, "{a}")
    port.server.is_slot_moving = True
    run(cancel(port, claim, "channel|waiter|2500", port.now() + 1))
    port.server.is_slot_moving = False
    port.server.put(KEYS[0], claim.identifier, 60)
    run(release(port, claim, "script"))
    assert port.server.value(KEYS[0]) is None

    claim = acquired(port, "{a}")
    port.server.is_slot_moving = True
    run(cancel(port, claim, "channel|waiter|2500", port.now() + 1))
    port.server.is_slot_moving = False
    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


def test_lock_is_held_for_min_hold(port: Any) -> None:
    claim = acquired(port, "{a}")
    claim.held_until = port.now() + 5
    port.server.is_slot_moving = True

    run(release(port, claim, "script"))

    assert port.server.value(KEYS[0]) == f"{claim.identifier}:rest"
    assert port.server.left(KEYS[0]) == pytest.approx(5, abs=0.1)


def test_several_names_are_refused_and_leave_nothing(port: Any) -> None:
    port.server.is_slot_moving = True

    refusal = run(acquire(port, new_claim("{a}", "{a}b"), 2, 0.1))

    assert refusal is not None
    assert "moving" in refusal.why
    assert [port.server.value(key) for key in KEYS] == [None, None]


@pytest.mark.parametrize("names", [["{a}"], ["{a}", "{a}b"]])
@pytest.mark.parametrize("fencing", [False, True])
def test_no_lock_is_acquired_whose_replicas_another_node_would_count(
    port: Any, names: list[str], fencing: bool
) -> None:
    port.server.replicas, port.server.is_slot_moving = 1, True
    claim = new_claim(*names)
    claim.replicas, claim.fencing = 1, fencing

    refusal = run(acquire(port, claim, 0, 0.1))

    assert refusal is not None
    assert "moving" in refusal.why
    assert [port.server.value(key) for key in claim.keys] == [None] * len(names)

    port.server.is_slot_moving = False
    assert run(acquire(port, claim, 0, 0.1)) is None
    assert [port.server.value(key) for key in claim.keys] == [claim.identifier] * len(names)


def test_leases_of_one_slot_are_renewed_and_extended_one_by_one(port: Any) -> None:
    held, lost = acquired(port, "{a}", "{a}b"), acquired(port, "{a}c")
    port.server.drop(lost.keys[0])
    port.server.is_slot_moving = True

    kept, refusal = run(renew(port, [Renewal(held, 60), Renewal(lost, 60)], port.now() + 5))

    assert kept is None
    assert isinstance(refusal, tuple)
    assert all(port.server.left(key) > 50 for key in KEYS)
    run(extend(port, held, 100))
    assert all(port.server.left(key) > 90 for key in KEYS)


@pytest.mark.parametrize("begins", [0.0, 0.5])
@pytest.mark.parametrize("wait", [2.0, 20.0])
def test_waiter_rechecks_on_its_own(begins: float, wait: float) -> None:
    server = SimulatedServer(Clock(), cluster=True)
    other, process = SimulatedPort(server), SimulatedProcess(server)
    claim = acquired(other, "a", expire=60)
    server.clock.at(server.clock.now + begins, lambda: setattr(server, "is_slot_moving", True))
    server.clock.at(server.clock.now + 5, lambda: run(release(other, claim, "script")))
    server.clock.advance(0.0)

    attempt = process.acquire("a", wait=wait, expire=10)
    server.clock.advance(12)

    assert attempt.error is None
    assert attempt.at is not None
    assert attempt.held is (wait == 20.0)
    assert (server.value(b"sys:lock:a") == attempt.claim.identifier) is attempt.held


@pytest.mark.parametrize("expire", [0.5, 10])
@pytest.mark.parametrize("begins", [0.0, 0.5])
def test_lock_acquired_without_the_queue_is_entered_immediately(
    begins: float, expire: float
) -> None:
    server = SimulatedServer(Clock(), cluster=True)
    process, key = SimulatedProcess(server), b"sys:lock:a"
    server.put(key, "another program", 60)
    server.clock.at(server.clock.now + begins, lambda: setattr(server, "is_slot_moving", True))
    attempt = process.acquire("a", wait=20, expire=expire)
    server.clock.advance(3)
    server.drop(key)

    while server.value(key) is None:
        server.clock.advance(0.005)
    server.clock.advance(0.02)

    assert attempt.held
    assert attempt.is_live


def test_release_of_an_awaited_lock_does_not_wait(port: Any) -> None:
    claim = acquired(port, "{a}")
    Commands(port.server).zadd(with_queue(claim.keys)[1], 1, "channel|waiter|2500")
    port.may_resend = False
    port.server.is_slot_moving, began = True, port.now()

    run(release(port, claim, "native"))

    assert port.server.value(KEYS[0]) is None
    assert port.now() - began < 0.1


def test_lock_of_another_is_released_by_force(port: Any) -> None:
    claim = acquired(port, "{a}")
    port.server.is_slot_moving, began = True, port.now()

    assert run(force(port, claim.keys, claim.identifier))

    assert port.server.value(KEYS[0]) is None
    assert port.now() - began < 0.1


def test_lease_that_expired_while_leaving_a_queue_is_not_entered() -> None:
    server = SimulatedServer(Clock())
    holder, process, key = SimulatedPort(server), SimulatedProcess(server), b"sys:lock:a"
    acquired(holder, "a", expire=60)
    attempt = process.acquire("a", wait=20, expire=0.5)
    server.clock.advance(1)
    process.is_cut_off = True
    process.subscriptions[-1].cut()
    server.clock.advance(1)
    fates = iter([slow(0.7)])

    def usual(request: Any) -> Any:
        leaves = process.port.verbs[-1] == "enter"
        return (next(fates, delivered) if leaves else delivered)(request)

    process.port.usual = usual
    server.drop(key)
    while not attempt.held:
        server.clock.advance(0.01)

    assert attempt.is_live
    assert server.value(key) == attempt.claim.identifier


def test_waiters_join_their_queues_again_when_the_slot_has_moved() -> None:
    server = SimulatedServer(Clock(), cluster=True)
    other, process = SimulatedPort(server), SimulatedProcess(server)
    held = [acquired(other, name, expire=300) for name in ("{a}", "{a}b")]
    attempts = [process.acquire(name, wait=200, expire=10) for name in ("{a}", "{a}b")]
    server.clock.advance(1)
    server.is_slot_moving = True
    server.clock.advance(10)
    server.is_slot_moving = False
    server.clock.advance(0.5)

    for claim in held:
        run(release(other, claim, "script"))
    server.clock.advance(0.05)

    assert all(attempt.held for attempt in attempts)


def test_each_release_in_a_moving_slot_tries_the_script_first(port: Any) -> None:
    claims = [acquired(port, name) for name in ("{a}", "{a}b", "{a}c")]
    port.server.is_slot_moving = True

    for claim in claims[:2]:
        run(release(port, claim, "script"))
    port.server.is_slot_moving = False
    run(release(port, claims[2], "script"))

    assert port.verbs == [*["release", "extend", "unlock"] * 2, "release"]
    assert [port.server.value(key) for key in KEYS] == [None, None]


@pytest.mark.parametrize("min_hold", [0, 1])
@pytest.mark.parametrize("forced", [False, True])
def test_waiter_is_notified_immediately_after_a_move(min_hold: int, forced: bool) -> None:
    server = SimulatedServer(Clock(), cluster=True)
    other, process = SimulatedPort(server), SimulatedProcess(server)
    held, former = acquired(other, "{a}", expire=60), acquired(other, "{a}b")
    server.is_slot_moving = True
    run(release(other, former, "script"))
    server.is_slot_moving = False
    attempt = process.acquire("{a}", wait=20, expire=10)
    server.clock.advance(0.1)
    held.held_until = other.now() + min_hold

    if forced:
        run(force(other, held.keys, held.identifier))
    else:
        run(release(other, held, "script"))
    server.clock.advance(0.05 + min_hold)

    assert attempt.held


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_entry_that_remains_in_the_queue_delays_no_other_waiter(is_subscribed: bool) -> None:
    server = SimulatedServer(Clock(), cluster=True)
    other, first, second = (
        SimulatedPort(server),
        SimulatedProcess(server),
        SimulatedProcess(server, 1),
    )
    acquired(other, "{a}", expire=60), acquired(other, "{a}b", expire=60)
    attempt = first.acquire("{a}", wait=50, expire=10)
    server.clock.advance(1)
    server.is_slot_moving = True
    server.drop(KEYS[0])
    while not attempt.held:
        server.clock.advance(0.01)
    server.is_slot_moving = False
    if is_subscribed:
        first.acquire("{a}b", wait=50, expire=10)
    waiter = second.acquire("{a}", wait=50, expire=10)
    server.clock.advance(0.1)

    run(release(first.port, attempt.claim, "script"))
    server.clock.advance(0.05)

    assert waiter.held

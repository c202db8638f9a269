"""The replacement of redis-py's ``Lock``: locks without expiry, and tokens of the caller."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import redis
from support.faults import (
    Fate,
    Request,
    delayed,
    delivered,
    raising,
    refused,
    reply_lost,
    request_lost,
)
from support.redispy_requests import KEY, more, of_token, request
from support.simulated_queue import QueuePort, SimulatedProcess
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.redispy_lock import PROVISIONAL, AcquireRequest, acquire, release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import with_notes, with_queue
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError
from redis_lock_decorators.testing.fake.clock import Clock
from redis_lock_decorators.testing.fake.server import SimulatedServer

# Locks without expiry, and their tokens


@pytest.mark.parametrize("token", [None, "T"])
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("fate", [delivered, reply_lost, request_lost, refused])
def test_lock_receives_its_final_value_and_expiry(
    token: str | None, endless: bool, fate: Fate
) -> None:
    port = SimulatedPort()
    asked = request(token, endless=endless)
    port.faults = [None, fate]

    assert run(acquire(port, asked))

    assert port.server.value(KEY) == (token or asked.claim.identifier)
    assert (port.server.left(KEY) == math.inf) is endless
    run(release(port, asked.claim))
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("token", [None, "T"])
def test_final_value_costs_one_round_trip(token: str | None) -> None:
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
def test_process_that_holds_with_its_own_token_is_not_suspected(expire: float) -> None:
    server, entered = SimulatedServer(Clock()), []
    processes = [SimulatedProcess(server, number) for number in range(2)]

    async def hold(process: SimulatedProcess, number: int) -> None:
        queueing: Any = QueuePort(process)
        asked = AcquireRequest(claim_on(KEY, expire), 60.0, 0.1, f"T{number}", False)
        assert await acquire(queueing, asked)
        entered.append(number)
        await process.lease_loop.pause(0.3)
        await release(queueing, asked.claim)

    for number in range(12):
        processes[number % 3 // 2].lease_loop.start(hold(processes[number % 3 // 2], number))
        server.clock.advance(0.05)
    for _ in range(600):
        server.clock.advance(0.01)
        assert not any("suspect" in fact for fact in server.members(with_queue((KEY,))[2]))

    assert entered == list(range(12))
    assert [process.lease_loop.failures for process in processes] == [[], []]


@pytest.mark.parametrize("expire", [None, 6.0])
@pytest.mark.parametrize("fates", [[delivered], [reply_lost], [raising(KeyboardInterrupt())]])
def test_lock_of_another_with_the_same_token_is_neither_taken_nor_released(
    expire: float | None, fates: list[Fate]
) -> None:
    """The first lease is lost before the final value is set."""
    asked = AcquireRequest(claim_on(KEY, expire or PROVISIONAL), 0.0, 0.1, "T", expire is None)
    asked.claim.shares_identifier = True

    def late(request: Request) -> Any:
        port.server.put(KEY, "T", 60)
        return fates[0](request)

    port = SimulatedPort()
    port.faults = [None, late]

    with contextlib.suppress(KeyboardInterrupt):
        assert not run(acquire(port, asked))

    assert port.server.value(KEY) == "T"


@pytest.mark.parametrize("expire", [None, 6.0])
def test_lock_that_got_its_token_is_released_if_the_acquisition_is_interrupted(
    expire: float | None,
) -> None:
    asked = AcquireRequest(claim_on(KEY, expire or PROVISIONAL), 0.0, 0.1, "T", expire is None)
    asked.claim.shares_identifier = True

    def late(request: Request) -> Any:
        delivered(request)
        raise KeyboardInterrupt

    port = SimulatedPort()
    port.faults = [None, late]

    with pytest.raises(KeyboardInterrupt):
        run(acquire(port, asked))

    assert port.server.value(KEY) is None


def asked_with_token(expire: float | None = 6.0, renews: bool = False) -> AcquireRequest:
    claim = claim_on(KEY, expire or PROVISIONAL)
    claim.shares_identifier = True
    return AcquireRequest(claim, 0.0, 0.1, "T", expire is None, renews)


@pytest.mark.parametrize("is_released", [True, False])
def test_lock_acquired_while_its_slot_moves_is_released_later(is_released: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    before, later = asked_with_token(), asked_with_token()
    assert run(acquire(port, before))
    port.server.is_slot_moving = True
    if is_released:
        run(release(port, before.claim))
    else:
        port.clock.advance(7)
    assert run(acquire(port, later))
    port.server.is_slot_moving = False

    run(release(port, later.claim))

    assert port.server.value(KEY) is None


def test_late_release_leaves_a_lock_acquired_while_its_slot_moved() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    before, later = asked_with_token(), asked_with_token()
    assert run(acquire(port, before))
    port.clock.advance(7)
    port.server.is_slot_moving = True
    assert run(acquire(port, later))
    port.server.is_slot_moving = False

    with pytest.raises(LockLostError):
        run(release(port, before.claim))

    assert port.server.value(KEY) == "T"


@pytest.mark.parametrize("expire", [None, 6.0])
@pytest.mark.parametrize("is_executed", [True, False])
@pytest.mark.parametrize("has_moved", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_acquisition_interrupted_while_its_slot_moves_leaves_nothing(
    expire: float | None, is_executed: bool, has_moved: bool, number: int
) -> None:
    """The requests are ``acquire``, ``settle`` with all keys, three of the record, ``settle``."""

    def interrupt(request: Request) -> Any:
        if is_executed:
            with contextlib.suppress(Exception):
                delivered(request)
        port.server.is_slot_moving = not has_moved
        raise KeyboardInterrupt

    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    port.server.is_slot_moving = True
    port.faults = [*[delivered] * number, interrupt]

    with pytest.raises(KeyboardInterrupt):
        run(acquire(port, asked_with_token(expire)))

    assert port.server.value(KEY) is None


def test_interrupted_acquisition_leaves_the_lock_of_another_while_its_slot_moves() -> None:
    later = asked_with_token(None)

    def interrupt(request: Request) -> Any:
        port.server.drop(KEY)
        assert run(acquire(other, later))
        raise KeyboardInterrupt

    server = SimulatedServer(Clock(), cluster=True)
    port, other = SimulatedPort(server), SimulatedPort(server)
    server.is_slot_moving = True
    port.faults = [*[delivered] * 5, interrupt]

    with pytest.raises(KeyboardInterrupt):
        run(acquire(port, asked_with_token(None)))

    assert server.value(KEY) == "T"


@pytest.mark.parametrize("expire", [None, 6.0])
@pytest.mark.parametrize("later_expire", [None, 6.0])
@pytest.mark.parametrize("number", range(5))
def test_suspended_acquisition_takes_no_lock_of_another_while_its_slot_moves(
    expire: float | None, later_expire: float | None, number: int
) -> None:
    """It is suspended after that request until its lease is over and another has the token."""
    later = asked_with_token(later_expire)

    def suspend(request: Request) -> Any:
        try:
            return delivered(request)
        finally:
            port.clock.advance(11)
            assert run(acquire(other, later))

    server = SimulatedServer(Clock(), cluster=True)
    port, other = SimulatedPort(server), SimulatedPort(server)
    server.is_slot_moving = True
    port.faults = [*[delivered] * number, suspend]

    with contextlib.suppress(redis.TimeoutError):
        assert not run(acquire(port, asked_with_token(expire)))

    assert server.value(KEY) == "T"
    run(release(other, later.claim))
    assert server.value(KEY) is None


def test_suspended_release_leaves_the_lock_of_another_while_its_slot_moves() -> None:
    """It is suspended after it has read the record, until its lease is over."""
    asked, later = asked_with_token(), asked_with_token()

    def suspend(request: Request) -> Any:
        found = delivered(request)
        if port.verbs[-1] == "ZRANGE":
            port.clock.advance(7)
            assert run(acquire(other, later))
        return found

    server = SimulatedServer(Clock(), cluster=True)
    port, other = SimulatedPort(server), SimulatedPort(server)
    assert run(acquire(port, asked))
    server.is_slot_moving = True
    port.usual = suspend

    with pytest.raises(LockLostError):
        run(release(port, asked.claim))

    assert server.value(KEY) == "T"
    run(release(other, later.claim))
    assert server.value(KEY) is None


@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_release_without_a_reply_is_repeated_while_its_slot_moves(fate: Fate) -> None:
    """What got no reply is the script, which a server whose slot is moving refuses."""
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    asked = asked_with_token(None)
    assert run(acquire(port, asked))
    port.server.is_slot_moving, port.faults = True, [request_lost]

    run(release(port, asked.claim))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("command", ["ZREMRANGEBYSCORE", "ZADD", "PEXPIRE"])
def test_lock_whose_acquisition_could_not_be_recorded_is_released(command: str) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    before, later = asked_with_token(), asked_with_token()
    assert run(acquire(port, before))
    port.clock.advance(7)
    port.server.is_slot_moving = True
    port.usual = lambda request: (
        refused(request) if port.verbs[-1] == command else delivered(request)
    )
    assert run(acquire(port, later))
    port.server.is_slot_moving = False

    run(release(port, later.claim))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize(
    ("expire", "renews", "lasts"), [(6.0, False, 3606), (6.0, True, 86400), (None, False, 86400)]
)
def test_record_of_a_token_lasts_as_long_as_its_lock_may_be_held(
    expire: float | None, renews: bool, lasts: float
) -> None:
    port = SimulatedPort()

    run(acquire(port, asked_with_token(expire, renews)))

    assert port.server.left(with_notes((KEY,))[3]) == pytest.approx(lasts, abs=1)


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


def test_final_value_is_set_though_the_slot_begins_to_move() -> None:
    server = SimulatedServer(Clock())
    holder, process = SimulatedProcess(server, 0).acquire(), SimulatedProcess(server, 1)
    asked = AcquireRequest(claim_on(KEY, 2.0), 60.0, 0.1, "T", False)

    def torn(request: Request) -> Any:
        server.is_slot_moving = True
        return delivered(request)

    async def acquire_it() -> None:
        queueing: Any = QueuePort(process)
        assert await acquire(queueing, asked)

    process.lease_loop.start(acquire_it())
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

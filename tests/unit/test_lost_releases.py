"""A release repeated after a lost reply is no loss, whichever client holds the lock by then."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Request, delivered, reply_lost, request_lost
from support.late_copies import LEASE, World
from support.simulation import Clock, SimulatedPort, SimulatedServer, acquired, new_claim

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.functions import release_lock
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._lua import MOST_RECORDS, RECORD_TTL
from redis_lock_decorators._rules.keys import slot_of, with_notes
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError

KEY = b"sys:lock:a"
_, QUEUE, _, RELEASED = with_notes((KEY,))
CHANNEL = "redis-lock:others"
#: Keys of two slots, in the order in which they are acquired.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)

every_count = pytest.mark.parametrize("count", [0, 1, 2, 50])
every_fate = pytest.mark.parametrize("fate", [reply_lost, delivered])


class Others:
    """Waiters of other processes that act while a reply is in transit."""

    def __init__(self, server: SimulatedServer, key: bytes = KEY) -> None:
        self.port, self.key = SimulatedPort(server), key
        self._count = 0

    def wait(self, count: int) -> None:
        """Add ``count`` waiters to the queue."""
        server, queue = self.port.server, with_notes((self.key,))[1]
        server.subscribers[CHANNEL] = [lambda word: None]
        places = {f"{CHANNEL}|w{number}|2500": number + 1 for number in range(count)}
        server._stored[queue] = (places, math.inf)
        self._count = count

    def take_over(self) -> None:
        """Let the first of them hold the lock, as after the expiry of the lease."""
        self.port.server.put(self.key, "w0" if self._count else "newcomer", 60)
        queue = with_notes((self.key,))[1]
        self.port.server._hdel(queue, f"{CHANNEL}|w0|2500")

    def take_turns(self, last: str) -> None:
        """Let each of them hold and release the lock; ``last`` holds it at the end."""
        for number in range(self._count - (last == "waiter")):
            claim = claim_on(self.key, LEASE, f"w{number}")
            assert run(release_lock(self.port, claim, "script"))
        if last == "newcomer":
            self.port.server.put(self.key, "newcomer", 60)


def scene(method: str = "script") -> tuple[SimulatedPort, Any]:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = acquired(port, "a", expire=60)
    claim.has_queued = method != "script"
    return port, claim


def with_delayed_reply(fate: Callable[[Request], Any], does: Callable[[], object]) -> Any:
    """The given fate, with a call of ``does`` before the reply or the error arrives."""

    def meet(request: Request) -> Any:
        try:
            return fate(request)
        finally:
            does()

    return meet


# Releases that are not reported as lost


@pytest.mark.parametrize("last", ["waiter", "newcomer", "none"])
@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
def test_release_without_a_reply_is_no_loss_after_any_hand_offs(
    method: ReleaseMethod, count: int, last: str
) -> None:
    port, claim = scene(method)
    others = Others(port.server)
    others.wait(count)
    port.faults = [with_delayed_reply(reply_lost, lambda: others.take_turns(last))]

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())
    wanted = {"waiter": f"w{count - 1}", "newcomer": "newcomer", "none": None}[last]
    assert port.server.value(KEY) == wanted


@pytest.mark.parametrize("may_resend", [False, True])
def test_release_after_the_last_waiter_released_is_no_loss(may_resend: bool) -> None:
    port, claim = scene()
    port.may_resend = may_resend
    others = Others(port.server)
    others.wait(1)
    run(release(SimulatedPort(port.server), claim, "script"))  # this release is recorded
    others.take_turns("none")
    claim = acquired(port, "a", expire=60)
    port.faults = [with_delayed_reply(reply_lost, lambda: port.server.put(KEY, "newcomer", 60))]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("count", [1, 2])
def test_release_under_min_hold_is_no_loss_after_a_hand_off(count: int) -> None:
    def later() -> None:
        port.clock.advance(1)
        port.server.put(KEY, "w0", 60)
        others.take_turns("waiter")

    port, claim = scene()
    claim.held_until = port.now() + 0.5
    others = Others(port.server)
    others.wait(count)
    port.faults = [with_delayed_reply(reply_lost, later)]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())


def test_release_of_several_names_is_no_loss_after_their_hand_offs() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    claim = acquired(port, "a", "b", expire=60)
    waiters = [Others(port.server, key) for key in (FIRST, SECOND)]
    for others in waiters:
        others.wait(3)

    def each_in_turn(request: Request) -> Any:
        others = waiters[len([sent for sent in port.log if sent.verb == "release"]) - 1]
        return with_delayed_reply(reply_lost, lambda: others.take_turns("waiter"))(request)

    port.faults = [each_in_turn, each_in_turn]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())
    assert port.server.value(FIRST) == port.server.value(SECOND) == "w2"


@every_count
@every_fate
def test_releases_with_the_same_token_are_distinguished(fate: Any, count: int) -> None:
    port = SimulatedPort()
    others = Others(port.server)
    for _ in range(2):  # the token is used twice
        claim = new_claim("a", identifier="token")
        port.server.put(KEY, "token", 60)
        others.wait(count)
        port.faults = [with_delayed_reply(fate, lambda: others.take_turns("none"))]
        assert run(release_lock(port, claim, "script"))

    port.server.put(KEY, "newcomer", 60)

    assert not run(release_lock(port, new_claim("a", identifier="token"), "script"))


def test_each_release_is_recorded_under_its_own_name() -> None:
    claims = [new_claim("a"), new_claim("a", identifier="token")]
    claims[0].identifier = "handed off"
    port = SimulatedPort()
    for claim in [*claims, new_claim("a", identifier="token")]:
        port.server.put(KEY, claim.identifier, 60)
        Others(port.server).wait(1)
        run(release(port, claim, "script")) if claim.unique else run(
            release_lock(port, claim, "script")
        )

    assert len(port.server.members(RELEASED)) == 3


# Losses that are still reported


@every_count
def test_lock_lost_before_its_release_is_reported_as_lost(count: int) -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(count)
    others.take_over()
    port.faults = [with_delayed_reply(request_lost, lambda: others.take_turns("newcomer"))]

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


@every_count
def test_lock_released_by_force_is_reported_as_lost(count: int) -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(count)

    assert run(force(others.port, (KEY,), claim.identifier))
    others.take_turns("newcomer")

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


# The cost of the records


def test_release_without_waiters_is_not_recorded() -> None:
    port, claim = scene()

    run(release(port, claim, "script"))

    assert port.server.members(RELEASED) == {}
    assert port.verbs == ["release"]


def test_records_expire_and_are_short_for_clients_that_never_repeat() -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(1)
    run(release(port, claim, "script"))
    ends = port.now() + RECORD_TTL / 1000

    others.take_turns("none")
    while port.now() < ends + 5:
        run(release(port, acquired(port, "a"), "script"))
        port.clock.advance(3)
        assert port.server.left(RELEASED) <= max(0, ends - port.now() + 0.01)

    assert port.server.members(RELEASED) == {}


def test_records_of_a_client_that_repeats_last_half_a_minute() -> None:
    port = SimulatedPort(may_resend=True)
    for _ in range(100):
        port.server.put(KEY, "holder", 60)
        assert run(release_lock(port, new_claim("a", identifier="holder"), "script"))
        port.clock.advance(1)

    assert 29 <= len(port.server.members(RELEASED)) <= 31


def test_number_of_records_is_limited() -> None:
    port = SimulatedPort()
    port.latency = 0.00001
    others = Others(port.server)
    others.wait(MOST_RECORDS + 50)
    others.take_over()

    others.port.latency = port.latency
    others.take_turns("waiter")

    assert len(port.server.members(RELEASED)) <= MOST_RECORDS


def test_late_copies_recognise_their_own_releases() -> None:
    """Every request of many processes is repeated a little later; no loss is reported."""
    world = World(dict.fromkeys(range(1000), 0.05))

    async def hold(process: Any, after: float) -> None:
        await process.pause(after)
        claim = await process.acquire("a", wait=60)
        await process.pause(0.01)
        await process.release(claim)

    for number in range(20):
        process = world.process()
        process.start(hold(process, 0.001 * number))
    world.run()

    assert world.violations == []

"""A release whose reply is lost is repeated: whoever holds the lock by then, it was no loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Request, delivered, reply_lost, request_lost
from support.late_copies import LEASE, World
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim, taken

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.functions import release_lock
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._lua import MOST_NOTED, NOTED
from redis_lock_decorators._rules.keys import slot_of, with_notes
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockLostError

KEY = b"sys:lock:a"
_, QUEUE, _, RELEASED = with_notes((KEY,))
CHANNEL = "redis-lock:others"
#: Keys of two slots, in the order in which everybody takes them.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)

every_count = pytest.mark.parametrize("count", [0, 1, 2, 50])
every_fate = pytest.mark.parametrize("fate", [reply_lost, delivered])


class Others:
    """Who waits for a lock, and what they do while a reply is on its way."""

    def __init__(self, server: SimulatedServer, key: bytes = KEY) -> None:
        self.port, self.key = SimulatedPort(server), key
        self._count = 0

    def wait(self, count: int) -> None:
        """So many wait in the queue."""
        server, queue = self.port.server, with_notes((self.key,))[1]
        server.subscribers[CHANNEL] = [lambda word: None]
        places = {f"{CHANNEL}|w{number}|2500": number + 1 for number in range(count)}
        server._stored[queue] = (places, math.inf)
        self._count = count

    def take_over(self) -> None:
        """The first of them holds the lock, as its holder let it lapse."""
        self.port.server.put(self.key, "w0" if self._count else "newcomer", 60)
        queue = with_notes((self.key,))[1]
        self.port.server._hdel(queue, f"{CHANNEL}|w0|2500")

    def take_turns(self, last: str) -> None:
        """All but the last of them hold the lock and release it; then a newcomer may hold it."""
        for number in range(self._count - (last == "waiter")):
            claim = claim_on(self.key, LEASE, f"w{number}")
            assert run(release_lock(self.port, claim, "script"))
        if last == "newcomer":
            self.port.server.put(self.key, "newcomer", 60)


def scene(method: str = "script") -> tuple[SimulatedPort, Any]:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = taken(port, "a", expire=60)
    claim.has_queued = method != "script"
    return port, claim


def while_it_travels(fate: Callable[[Request], Any], does: Callable[[], object]) -> Any:
    """A fate, and what is done before the reply, or the news that there is none, arrives."""

    def meet(request: Request) -> Any:
        try:
            return fate(request)
        finally:
            does()

    return meet


# No loss


@pytest.mark.parametrize("last", ["waiter", "newcomer", "nobody"])
@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
def test_release_without_a_reply_is_no_loss_however_often_the_lock_changed_hands(
    method: ReleaseMethod, count: int, last: str
) -> None:
    port, claim = scene(method)
    others = Others(port.server)
    others.wait(count)
    port.faults = [while_it_travels(reply_lost, lambda: others.take_turns(last))]

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())
    wanted = {"waiter": f"w{count - 1}", "newcomer": "newcomer", "nobody": None}[last]
    assert port.server.value(KEY) == wanted


@pytest.mark.parametrize("may_resend", [False, True])
def test_release_that_found_nobody_waiting_any_more_is_no_loss(may_resend: bool) -> None:
    port, claim = scene()
    port.may_resend = may_resend
    others = Others(port.server)
    others.wait(1)
    run(release(SimulatedPort(port.server), claim, "script"))  # which is noted
    others.take_turns("nobody")
    claim = taken(port, "a", expire=60)
    port.faults = [while_it_travels(reply_lost, lambda: port.server.put(KEY, "newcomer", 60))]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("count", [1, 2])
def test_lock_that_rested_after_its_release_and_changed_hands_is_no_loss(count: int) -> None:
    def later() -> None:
        port.clock.advance(1)
        port.server.put(KEY, "w0", 60)
        others.take_turns("waiter")

    port, claim = scene()
    claim.held_until = port.now() + 0.5
    others = Others(port.server)
    others.wait(count)
    port.faults = [while_it_travels(reply_lost, later)]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())


def test_several_names_are_no_loss_though_each_changed_hands() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    claim = taken(port, "a", "b", expire=60)
    crowds = [Others(port.server, key) for key in (FIRST, SECOND)]
    for others in crowds:
        others.wait(3)

    def each_in_turn(request: Request) -> Any:
        others = crowds[len([sent for sent in port.log if sent.verb == "release"]) - 1]
        return while_it_travels(reply_lost, lambda: others.take_turns("waiter"))(request)

    port.faults = [each_in_turn, each_in_turn]

    run(release(port, claim, "script"))

    assert not claim.is_lost(port.now())
    assert port.server.value(FIRST) == port.server.value(SECOND) == "w2"


@every_count
@every_fate
def test_release_by_a_token_tells_its_own_release_from_others_by_the_token(
    fate: Any, count: int
) -> None:
    port = SimulatedPort()
    others = Others(port.server)
    for _ in range(2):  # it is used again
        claim = new_claim("a", identifier="token")
        port.server.put(KEY, "token", 60)
        others.wait(count)
        port.faults = [while_it_travels(fate, lambda: others.take_turns("nobody"))]
        assert run(release_lock(port, claim, "script"))

    port.server.put(KEY, "newcomer", 60)

    assert not run(release_lock(port, new_claim("a", identifier="token"), "script"))


def test_every_name_for_a_release_is_another() -> None:
    claims = [new_claim("a"), new_claim("a", identifier="token")]
    claims[0].identifier = "passed on"
    port = SimulatedPort()
    for claim in [*claims, new_claim("a", identifier="token")]:
        port.server.put(KEY, claim.identifier, 60)
        Others(port.server).wait(1)
        run(release(port, claim, "script")) if claim.unique else run(
            release_lock(port, claim, "script")
        )

    assert len(port.server.members(RELEASED)) == 3


# Losses are told all the same


@every_count
def test_lock_that_was_lost_before_its_release_is_told_lost(count: int) -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(count)
    others.take_over()
    port.faults = [while_it_travels(request_lost, lambda: others.take_turns("newcomer"))]

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


@every_count
def test_lock_that_was_released_by_force_is_told_lost(count: int) -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(count)

    assert run(force(others.port, (KEY,), claim.identifier))
    others.take_turns("newcomer")

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


# What the notes cost


def test_lock_that_nobody_waits_for_is_noted_nowhere() -> None:
    port, claim = scene()

    run(release(port, claim, "script"))

    assert port.server.members(RELEASED) == {}
    assert port.verbs == ["release"]


def test_notes_end_by_themselves_and_do_not_last_for_who_need_not_wait() -> None:
    port, claim = scene()
    others = Others(port.server)
    others.wait(1)
    run(release(port, claim, "script"))
    ends = port.now() + NOTED / 1000

    others.take_turns("nobody")
    while port.now() < ends + 5:
        run(release(port, taken(port, "a"), "script"))
        port.clock.advance(3)
        assert port.server.left(RELEASED) <= max(0, ends - port.now() + 0.01)

    assert port.server.members(RELEASED) == {}


def test_notes_of_a_client_that_repeats_requests_are_those_of_the_last_half_minute() -> None:
    port = SimulatedPort(may_resend=True)
    for _ in range(100):
        port.server.put(KEY, "holder", 60)
        assert run(release_lock(port, new_claim("a", identifier="holder"), "script"))
        port.clock.advance(1)

    assert 29 <= len(port.server.members(RELEASED)) <= 31


def test_notes_are_never_more_than_so_many() -> None:
    port = SimulatedPort()
    port.latency = 0.00001
    others = Others(port.server)
    others.wait(MOST_NOTED + 50)
    others.take_over()

    others.port.latency = port.latency
    others.take_turns("waiter")

    assert len(port.server.members(RELEASED)) <= MOST_NOTED


def test_copies_that_come_late_find_whose_release_it_was() -> None:
    """Every request of a crowd is repeated a little later; nobody is told a loss."""
    world = World(dict.fromkeys(range(1000), 0.05))

    async def holds(process: Any, after: float) -> None:
        await process.pause(after)
        claim = await process.takes("a", wait=60)
        await process.pause(0.01)
        await process.ends(claim)

    for number in range(20):
        process = world.process()
        process.does(holds(process, 0.001 * number))
    world.run()

    assert world.violations == []

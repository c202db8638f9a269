"""Who may only listen and publish says the word of a grant again: nobody loses a lock by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Request, delivered, request_lost
from support.simulated_queue import QueuePort, Taking, Waiting
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.claim_state import ENDED, RELEASE_FAILED, RELEASING
from redis_lock_decorators._flow.queue.entries import QueueEntries, Received
from redis_lock_decorators._flow.queue.entry_records import AbandonedEntry, EnteredClaim
from redis_lock_decorators._flow.redispy_adjust import adjust
from redis_lock_decorators._flow.redispy_lock import AcquireRequest, acquire
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._rules import lease_times, messages

KEY, RUN_ID, NOW = b"sys:lock:a", b"0123", 1000.0


class Spy:
    """Hears all words, and says those of grants again."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._heard: list[tuple[str, str]] = []
        server.spies.append(lambda channel, word: self._heard.append((channel, word)))

    def says_all_again(self) -> None:
        for channel, word in self._heard[:]:
            if word.startswith("turn"):
                kind, hint, _ = word.split("|")
                self._server.publish(channel, f"again|{hint}")
                self._server.publish(channel, f"{kind}|{hint}|")
                self._server.publish(channel, word)


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(Clock(), natives=["DELIFEQ"])


@pytest.fixture
def spy(server: SimulatedServer) -> Spy:
    return Spy(server)


@pytest.fixture
def process(server: SimulatedServer) -> Waiting:
    """A process that listens all the time, as somebody waits there for another lock."""
    process = Waiting(server, 1)
    server.put(b"sys:lock:other", "held", 1000)
    process.takes("other", wait=900)
    server.clock.advance(0.05)
    return process


def handed_over(server: SimulatedServer, process: Waiting, **options: Any) -> Taking:
    """One that holds the lock, and was told so by a word."""
    holder = Waiting(server, 0).takes()
    server.clock.advance(0.01)
    waiter = process.takes(**options)
    server.clock.advance(0.05)
    holder.ends()
    server.clock.advance(0.05)
    assert waiter.held
    return waiter


@pytest.mark.parametrize(
    ("method", "rest"),
    [("script", 0.0), ("native", 0.0), ("transaction", 0.0), ("script", 2.0), ("transaction", 2.0)],
)
def test_lock_is_not_taken_from_one_that_is_letting_it_go(
    server: SimulatedServer, process: Waiting, spy: Spy, method: Any, rest: float
) -> None:
    waiter = handed_over(server, process)
    asked: list[str] = []

    def lost_while_the_spy_speaks(request: Request) -> Any:
        asked.append("release")
        server.clock.at(server.clock.now + 0.002, spy.says_all_again)
        return request_lost(request)

    process.port.faults = [lost_while_the_spy_speaks, lost_while_the_spy_speaks]
    if rest:
        waiter.claim.held_until = server.clock.now + rest
    process.lease_loop.start(release(QueuePort(process), waiter.claim, method))  # type: ignore[arg-type]
    server.clock.advance(0.2)
    stands = server.value(KEY)
    server.clock.advance(1)
    spy.says_all_again()
    server.clock.advance(0.1)

    assert asked
    assert process.lease_loop.failures == []
    assert (stands is not None) is (rest > 0)
    assert (server.value(KEY) is not None) is (rest > 0)


@pytest.mark.parametrize("after", [0.04, 1.0])
def test_lock_whose_end_was_moved_after_its_deadline_is_not_let_go(
    server: SimulatedServer, process: Waiting, spy: Spy, after: float
) -> None:
    holder = Waiting(server, 0).takes()
    server.clock.advance(0.01)
    queueing: Any = QueuePort(process)
    asked = AcquireRequest(claim_on(KEY, 10.0), 60.0, 0.1, None, False)
    process.lease_loop.start(works(acquire(queueing, asked)))
    server.clock.advance(0.05)
    holder.ends()
    server.clock.advance(0.05)
    if after > 0.1:  # another object has the same token, and moved the end
        server.put(KEY, asked.claim.identifier, 30)
    server.clock.advance(asked.claim.deadline + after - server.clock.now)
    spy.says_all_again()

    process.lease_loop.start(adjust(queueing, asked.claim, lambda left: 10.0))
    server.clock.advance(0.05)
    spy.says_all_again()
    server.clock.advance(0.1)

    assert asked.claim.is_live(server.clock.now)
    assert server.value(KEY) == asked.claim.identifier


async def works(acquiring: Any) -> None:
    assert await acquiring


def test_stand_in_that_begins_anew_after_a_loss_is_known_to_hold_the_lock(
    server: SimulatedServer, process: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    enter = QueueEntries.enter
    monkeypatch.setattr(
        QueueEntries,
        "enter",
        lambda places, entered: (
            ended.append(entered.claim.state is ENDED),
            enter(places, entered),
        ),
    )

    def taken_meanwhile(request: Request) -> Any:
        if ended == [False] and "settle" in process.port.verbs[-1:]:
            server.put(KEY, "another", 2)
        return delivered(request)

    holder = Waiting(server, 0).takes()
    server.clock.advance(0.01)
    process.port.usual = taken_meanwhile
    queueing: Any = QueuePort(process)
    asked = AcquireRequest(claim_on(KEY, 10.0), 60.0, 0.1, "T", False)
    process.lease_loop.start(works(acquire(queueing, asked)))
    server.clock.advance(0.05)
    holder.ends()
    server.clock.advance(5)

    assert ended == [False, False]
    assert server.value(KEY) == "T"


# What is known of places


def entered(places: QueueEntries, **client_state: Any) -> EnteredClaim:
    """A place whose claim holds the lock."""
    claim = new_claim("a")
    claim.mark_held(NOW)
    for name, fact in client_state.items():
        setattr(claim, name, fact)
    one = EnteredClaim(claim, claim.identifier, "a place", NOW + 1)
    places.enter(one)
    return one


def hear(places: QueueEntries, one: EnteredClaim, now: float) -> AbandonedEntry | None:
    """What becomes of the right word for a place."""
    hint, proof = messages.hint(one.identifier), messages.proof(RUN_ID, one.identifier, one.key)
    return places.receive(messages.Message(b"turn", hint, proof), Received(0, RUN_ID, now - 1, now))


@pytest.mark.parametrize(
    ("client_state", "after"),
    [
        ({}, 1.0),
        ({"state": RELEASING}, 1.0),
        ({"state": ENDED, "held_until": NOW + 5}, 1.0),
        ({"lost_reason": "somebody"}, 1.0),
        ({}, lease_times.deadline(0.0, 10) + 0.001),
        ({"state": RELEASE_FAILED}, 1000.0),
    ],
)
def test_place_is_not_left_before_its_claim_was_let_go(client_state: Any, after: float) -> None:
    places = QueueEntries()
    one = entered(places, **client_state)

    assert hear(places, one, NOW + after) is None
    assert hear(places, one, NOW + after) is None


@pytest.mark.parametrize(
    "client_state", [{"state": ENDED}, {"state": ENDED, "held_until": NOW + 0.5}]
)
def test_place_of_a_claim_that_was_let_go_is_handed_on_once(client_state: Any) -> None:
    places = QueueEntries()
    one = entered(places, **client_state)

    assert isinstance(hear(places, one, NOW + 1), AbandonedEntry)
    assert hear(places, one, NOW + 1) is None


def passed_on(claim: Any) -> None:
    claim.cohort, claim.identifier, claim.state = object(), "", ENDED


def lapses(claim: Any) -> None:
    """Nobody does anything."""


@pytest.mark.parametrize("ends", [passed_on, lapses])
def test_what_lapsed_or_was_passed_on_elsewhere_is_forgotten(ends: Callable[[Any], None]) -> None:
    places = QueueEntries()
    ones = [entered(places) for _ in range(100)]
    for one in ones:
        ends(one.claim)

    places.to_confirm(NOW + 20)

    assert places.next_confirmation() == float("inf")
    assert not places._entered
    assert not places._abandoned

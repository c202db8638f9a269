"""A client that repeats grant messages cannot make a holder lose its lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.faults import Request, delivered, request_lost
from support.simulated_queue import Acquisition, QueuePort, SimulatedProcess
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
    """Receives all messages, and repeats those about grants."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._received: list[tuple[str, str]] = []
        server.spies.append(lambda channel, message: self._received.append((channel, message)))

    def repeat_all(self) -> None:
        for channel, message in self._received[:]:
            if message.startswith("turn"):
                kind, hint, _ = message.split("|")
                self._server.publish(channel, f"again|{hint}")
                self._server.publish(channel, f"{kind}|{hint}|")
                self._server.publish(channel, message)


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(Clock(), natives=["DELIFEQ"])


@pytest.fixture
def spy(server: SimulatedServer) -> Spy:
    return Spy(server)


@pytest.fixture
def process(server: SimulatedServer) -> SimulatedProcess:
    """A process that remains subscribed because it also waits for another lock."""
    process = SimulatedProcess(server, 1)
    server.put(b"sys:lock:other", "held", 1000)
    process.acquire("other", wait=900)
    server.clock.advance(0.05)
    return process


def granted(server: SimulatedServer, process: SimulatedProcess, **options: Any) -> Acquisition:
    """A holder that was notified of its grant by a message."""
    holder = SimulatedProcess(server, 0).acquire()
    server.clock.advance(0.01)
    waiter = process.acquire(**options)
    server.clock.advance(0.05)
    holder.release()
    server.clock.advance(0.05)
    assert waiter.held
    return waiter


@pytest.mark.parametrize(
    ("method", "rest"),
    [("script", 0.0), ("native", 0.0), ("transaction", 0.0), ("script", 2.0), ("transaction", 2.0)],
)
def test_repeated_message_does_not_affect_a_release_in_progress(
    server: SimulatedServer, process: SimulatedProcess, spy: Spy, method: Any, rest: float
) -> None:
    waiter = granted(server, process)
    requests: list[str] = []

    def lost_while_messages_are_repeated(request: Request) -> Any:
        requests.append("release")
        server.clock.at(server.clock.now + 0.002, spy.repeat_all)
        return request_lost(request)

    process.port.faults = [lost_while_messages_are_repeated, lost_while_messages_are_repeated]
    if rest:
        waiter.claim.held_until = server.clock.now + rest
    process.lease_loop.start(release(QueuePort(process), waiter.claim, method))  # type: ignore[arg-type]
    server.clock.advance(0.2)
    stored = server.value(KEY)
    server.clock.advance(1)
    spy.repeat_all()
    server.clock.advance(0.1)

    assert requests
    assert process.lease_loop.failures == []
    assert (stored is not None) is (rest > 0)
    assert (server.value(KEY) is not None) is (rest > 0)


@pytest.mark.parametrize("after", [0.04, 1.0])
def test_lock_whose_end_was_moved_after_its_deadline_is_not_released(
    server: SimulatedServer, process: SimulatedProcess, spy: Spy, after: float
) -> None:
    holder = SimulatedProcess(server, 0).acquire()
    server.clock.advance(0.01)
    queueing: Any = QueuePort(process)
    request = AcquireRequest(claim_on(KEY, 10.0), 60.0, 0.1, None, False)
    process.lease_loop.start(succeed(acquire(queueing, request)))
    server.clock.advance(0.05)
    holder.release()
    server.clock.advance(0.05)
    if after > 0.1:  # another object has the same token, and moved the end
        server.put(KEY, request.claim.identifier, 30)
    server.clock.advance(request.claim.deadline + after - server.clock.now)
    spy.repeat_all()

    process.lease_loop.start(adjust(queueing, request.claim, lambda left: 10.0))
    server.clock.advance(0.05)
    spy.repeat_all()
    server.clock.advance(0.1)

    assert request.claim.is_live(server.clock.now)
    assert server.value(KEY) == request.claim.identifier


async def succeed(acquiring: Any) -> None:
    assert await acquiring


def test_redispy_lock_acquired_again_after_a_loss_is_known_as_held(
    server: SimulatedServer, process: SimulatedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    enter = QueueEntries.enter
    monkeypatch.setattr(
        QueueEntries,
        "enter",
        lambda entries, entered: (
            ended.append(entered.claim.state is ENDED),
            enter(entries, entered),
        ),
    )

    def acquired_by_another(request: Request) -> Any:
        if ended == [False] and "settle" in process.port.verbs[-1:]:
            server.put(KEY, "another", 2)
        return delivered(request)

    holder = SimulatedProcess(server, 0).acquire()
    server.clock.advance(0.01)
    process.port.usual = acquired_by_another
    queueing: Any = QueuePort(process)
    request = AcquireRequest(claim_on(KEY, 10.0), 60.0, 0.1, "T", False)
    process.lease_loop.start(succeed(acquire(queueing, request)))
    server.clock.advance(0.05)
    holder.release()
    server.clock.advance(5)

    assert ended == [False, False]
    assert server.value(KEY) == "T"


# The records of entries


def entered(entries: QueueEntries, **attributes: Any) -> EnteredClaim:
    """An entry whose claim holds the lock."""
    claim = new_claim("a")
    claim.mark_held(NOW)
    for name, value in attributes.items():
        setattr(claim, name, value)
    one = EnteredClaim(claim, claim.identifier, "an entry", NOW + 1)
    entries.enter(one)
    return one


def receive(entries: QueueEntries, one: EnteredClaim, now: float) -> AbandonedEntry | None:
    """Receive the proved message for an entry."""
    hint, proof = messages.hint(one.identifier), messages.proof(RUN_ID, one.identifier, one.key)
    return entries.receive(
        messages.Message(b"turn", hint, proof), Received(0, RUN_ID, now - 1, now)
    )


@pytest.mark.parametrize(
    ("attributes", "after"),
    [
        ({}, 1.0),
        ({"state": RELEASING}, 1.0),
        ({"state": ENDED, "held_until": NOW + 5}, 1.0),
        ({"lost_reason": "deleted"}, 1.0),
        ({}, lease_times.deadline(0.0, 10) + 0.001),
        ({"state": RELEASE_FAILED}, 1000.0),
    ],
)
def test_entry_is_not_abandoned_before_its_claim_is_released(attributes: Any, after: float) -> None:
    entries = QueueEntries()
    one = entered(entries, **attributes)

    assert receive(entries, one, NOW + after) is None
    assert receive(entries, one, NOW + after) is None


@pytest.mark.parametrize(
    "attributes", [{"state": ENDED}, {"state": ENDED, "held_until": NOW + 0.5}]
)
def test_entry_of_a_released_claim_is_released_once(attributes: Any) -> None:
    entries = QueueEntries()
    one = entered(entries, **attributes)

    assert isinstance(receive(entries, one, NOW + 1), AbandonedEntry)
    assert receive(entries, one, NOW + 1) is None


def handed_off(claim: Any) -> None:
    claim.cohort, claim.identifier, claim.state = object(), "", ENDED


def expires(claim: Any) -> None:
    """The holder does nothing."""


@pytest.mark.parametrize("end", [handed_off, expires])
def test_expired_or_handed_off_entries_are_dropped(end: Callable[[Any], None]) -> None:
    entries = QueueEntries()
    ones = [entered(entries) for _ in range(100)]
    for one in ones:
        end(one.claim)

    entries.to_confirm(NOW + 20)

    assert entries.next_confirmation(NOW + 20) == float("inf")
    assert not entries._entered
    assert not entries._abandoned

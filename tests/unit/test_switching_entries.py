"""Whatever the order of lines: who is handed a lock knows of it, or it is handed on at once."""

from __future__ import annotations

from typing import Any

import pytest
from support.simulation import new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.cohort import Cohort, hand_off, settle
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.entries import QueueEntries, Received
from redis_lock_decorators._flow.queue.entry_records import AbandonedEntry, EnteredClaim
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._rules import messages

SCENES = Scenes(
    "_flow/queue/entries",
    "_flow/queue/entry_records",
    "_flow/queue/cohort",
    "_flow/queue/cohort_waiter",
)
RUN_ID = b"0123"
NOW = 1000.0


class Told:
    """A waiter that remembers its news."""

    def __init__(self) -> None:
        self.signal: list[Signal] = []

    def notify(self, signal: Signal) -> None:
        self.signal.append(signal)


class Port:
    """A client whose only listener has these places."""

    def __init__(self, places: QueueEntries) -> None:
        self._entries = places

    def now(self) -> float:
        return NOW

    def subscriber(self, key: bytes) -> Port:
        return self

    def enter(self, identifier: str, claim: Claim) -> EnteredClaim:
        entered = EnteredClaim(claim, identifier, "", NOW + 0.5)
        self._entries.enter(entered)
        return entered


def new_waiter(claim: Claim) -> QueuedWaiter:
    turn = QueuedWaiter(claim.keys[0], claim.identifier, Told())  # type: ignore[arg-type]
    turn.queue_entry, turn.session = "a place", 0
    return turn


def held(name: str = "a") -> Claim:
    claim = new_claim(name)
    claim.mark_held(NOW)
    return claim


def word_for(identifier: str, key: bytes) -> messages.Message:
    hint, proof = messages.hint(identifier), messages.proof(RUN_ID, identifier, key)
    return messages.Message(b"turn", hint, proof)


def hear(places: QueueEntries, identifier: str, key: bytes) -> AbandonedEntry | None:
    """Hear from the server that the place has the lock."""
    return places.receive(word_for(identifier, key), Received(0, RUN_ID, NOW - 1, NOW))


def news_of(turn: QueuedWaiter) -> list[Signal]:
    waiter: Any = turn.wakeup
    return list(waiter.signal)


@SCENES.add
def a_waiter_leaves_while_it_is_told(switcher: Switcher) -> Scene:
    places, claim = QueueEntries(), new_claim("a")
    turn, found = new_waiter(claim), []
    places.join(turn)

    def check() -> None:
        (left,) = found
        assert (left is None) is (news_of(turn) == [Signal.GRANTED]), (
            "nobody has the lock it was handed"
        )
        assert not places

    return Scene(
        lambda: places.leave(turn),
        lambda: found.append(hear(places, turn.identifier, turn.key)),
        check,
    )


@SCENES.add
def two_waiters_join_and_leave_while_one_is_told(switcher: Switcher) -> Scene:
    places, turn, other = QueueEntries(), new_waiter(new_claim("a")), new_waiter(new_claim("b"))
    places.join(turn)

    def come_and_go() -> None:
        places.join(other)
        places.leave(turn)

    def all_turns() -> None:
        assert set(places.waiters()) <= {turn, other}
        assert hear(places, other.identifier, other.key) is None, "handed on though it waits"

    def check() -> None:
        assert places.waiters() == [other]
        hear(places, other.identifier, other.key)
        assert Signal.GRANTED in news_of(other)

    return Scene(come_and_go, all_turns, check)


@SCENES.add
def a_waiter_enters_and_leaves_while_it_is_told(switcher: Switcher) -> Scene:
    places, claim = QueueEntries(), held()
    turn, found = new_waiter(claim), []
    places.join(turn)

    def come_in() -> None:
        places.enter(EnteredClaim(claim, claim.identifier, "a place", NOW + 0.5))
        places.leave(turn)

    def check() -> None:
        assert found == [None], "a held lock is handed on"
        assert hear(places, claim.identifier, turn.key) is None

    return Scene(come_in, lambda: found.append(hear(places, claim.identifier, turn.key)), check)


@SCENES.add
def two_waiters_enter(switcher: Switcher) -> Scene:
    places, one, other = QueueEntries(), held(), held("b")

    def check() -> None:
        assert {entered.claim for entered in places.to_confirm(NOW)} == {one, other}
        assert places.to_confirm(NOW) == []

    def enter(claim: Claim) -> None:
        places.enter(EnteredClaim(claim, claim.identifier, "a place", NOW))

    return Scene(lambda: enter(one), lambda: enter(other), check)


@SCENES.add
def a_waiter_enters_while_others_are_noted(switcher: Switcher) -> Scene:
    places, before, claim, over = QueueEntries(), held("b"), held(), held("c")
    places.enter(EnteredClaim(before, before.identifier, "a place", NOW))
    places.enter(EnteredClaim(over, over.identifier, "a place", NOW))
    noted: list[Claim] = []

    def enter() -> None:
        over.state = ENDED
        places.enter(EnteredClaim(claim, claim.identifier, "a place", NOW))

    def note() -> None:
        noted.extend([entered.claim for entered in places.to_confirm(NOW)])

    def check() -> None:
        note()
        assert sorted(noted.count(one) for one in (before, claim)) == [1, 1]
        assert isinstance(hear(places, over.identifier, over.keys[0]), AbandonedEntry)

    return Scene(enter, note, check)


@SCENES.add
def a_waiter_leaves_while_others_are_noted(switcher: Switcher) -> Scene:
    places, turn = QueueEntries(), new_waiter(new_claim("a"))
    places.join(turn)

    def check() -> None:
        assert isinstance(hear(places, turn.identifier, turn.key), AbandonedEntry)
        assert hear(places, turn.identifier, turn.key) is None, "handed on twice"

    return Scene(lambda: places.leave(turn), lambda: places.to_confirm(NOW), check)


def passing() -> tuple[QueueEntries, Port, Claim, CohortWaiter]:
    """A lock that came from the queue, and who is to have it next in this process."""
    places, cohort = QueueEntries(), Cohort()
    port, holder, successor = Port(places), held(), new_claim("a")
    holder.cohort = successor.cohort = cohort
    holder.has_queued = True
    cohort.holder, cohort.since = holder, NOW
    successor.cohort_waiter = CohortWaiter(successor, Told())  # type: ignore[arg-type]
    cohort.add(successor.cohort_waiter)
    holder.queue_record = port.enter(holder.identifier, holder)
    return places, port, holder, successor.cohort_waiter


@SCENES.add
def word_of_a_lock_comes_late_while_it_is_passed_on(switcher: Switcher) -> Scene:
    places, port, holder, successor = passing()
    identifier, found = holder.identifier, []

    def check() -> None:
        assert found == [None], "a lock that is passed on is taken from who has it"
        settle(successor.claim)
        assert hear(places, identifier, holder.keys[0]) is None

    return Scene(
        lambda: hand_off(port, holder),  # type: ignore[arg-type]
        lambda: found.append(hear(places, identifier, holder.keys[0])),
        check,
    )


@SCENES.add
def word_of_a_lock_comes_late_while_its_heir_wakes(switcher: Switcher) -> Scene:
    places, port, holder, successor = passing()
    identifier, found = holder.identifier, []
    assert hand_off(port, holder)  # type: ignore[arg-type]

    def check() -> None:
        assert found == [None], "a lock that was passed on is taken from who has it"

    return Scene(
        lambda: settle(successor.claim),
        lambda: found.append(hear(places, identifier, holder.keys[0])),
        check,
    )


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_places_are_known_whatever_the_order_of_lines(scene: Make) -> None:
    assert SCENES.explore(scene) > 5

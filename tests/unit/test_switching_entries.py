"""Each granted lock has a holder or is handed off again, with thread switches at any line."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_wakeup import FakeWakeup
from support.simulation import new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.hand_off_decision import HandOffDecision
from redis_lock_decorators._flow.queue.cohort import Cohort, complete_hand_offs, hand_off
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


class Port:
    """A client whose only subscriber has these entries."""

    def __init__(self, entries: QueueEntries) -> None:
        self._entries = entries

    def now(self) -> float:
        return NOW

    def subscriber(self, key: bytes) -> Port:
        return self

    def enter(self, identifier: str, claim: Claim) -> EnteredClaim:
        entered = EnteredClaim(claim, identifier, "", NOW + 0.5)
        self._entries.enter(entered)
        return entered


def new_waiter(claim: Claim) -> QueuedWaiter:
    waiter = QueuedWaiter(claim.keys[0], claim.identifier, FakeWakeup())  # type: ignore[arg-type]
    waiter.queue_entry, waiter.connection_number = "an entry", 0
    return waiter


def held(name: str = "a") -> Claim:
    claim = new_claim(name)
    claim.mark_held(NOW)
    return claim


def grant_message(identifier: str, key: bytes) -> messages.Message:
    hint, proof = messages.hint(identifier), messages.proof(RUN_ID, identifier, key)
    return messages.Message(b"turn", hint, proof)


def receive(entries: QueueEntries, identifier: str, key: bytes) -> AbandonedEntry | None:
    """Receive the message that the entry was handed the lock."""
    return entries.receive(grant_message(identifier, key), Received(0, RUN_ID, NOW - 1, NOW))


def signals_of(waiter: QueuedWaiter) -> list[Signal]:
    wakeup: Any = waiter.wakeup
    return list(wakeup.signal)


@SCENES.add
def waiter_leaves_while_it_is_notified(switcher: Switcher) -> Scene:
    entries, claim = QueueEntries(), new_claim("a")
    waiter, found = new_waiter(claim), []
    entries.join(waiter)

    def check() -> None:
        (left,) = found
        assert (left is None) is (signals_of(waiter) == [Signal.GRANTED]), (
            "the lock that it was handed has no holder"
        )
        assert not entries

    return Scene(
        lambda: entries.leave(waiter),
        lambda: found.append(receive(entries, waiter.identifier, waiter.key)),
        check,
    )


@SCENES.add
def two_waiters_join_and_leave_while_one_is_notified(switcher: Switcher) -> Scene:
    entries, waiter, other = QueueEntries(), new_waiter(new_claim("a")), new_waiter(new_claim("b"))
    entries.join(waiter)

    def join_and_leave() -> None:
        entries.join(other)
        entries.leave(waiter)

    def receive_other() -> None:
        assert set(entries.waiters()) <= {waiter, other}
        assert receive(entries, other.identifier, other.key) is None, (
            "released though its waiter waits"
        )

    def check() -> None:
        assert entries.waiters() == [other]
        receive(entries, other.identifier, other.key)
        assert Signal.GRANTED in signals_of(other)

    return Scene(join_and_leave, receive_other, check)


@SCENES.add
def waiter_enters_and_leaves_while_it_is_notified(switcher: Switcher) -> Scene:
    entries, claim = QueueEntries(), held()
    waiter, found = new_waiter(claim), []
    entries.join(waiter)

    def enter_and_leave() -> None:
        entries.enter(EnteredClaim(claim, claim.identifier, "an entry", NOW + 0.5))
        entries.leave(waiter)

    def check() -> None:
        assert found == [None], "a held lock is released"
        assert receive(entries, claim.identifier, waiter.key) is None

    return Scene(
        enter_and_leave, lambda: found.append(receive(entries, claim.identifier, waiter.key)), check
    )


@SCENES.add
def two_waiters_enter(switcher: Switcher) -> Scene:
    entries, one, other = QueueEntries(), held(), held("b")

    def check() -> None:
        assert {entered.claim for entered in entries.to_confirm(NOW)} == {one, other}
        assert entries.to_confirm(NOW) == []

    def enter(claim: Claim) -> None:
        entries.enter(EnteredClaim(claim, claim.identifier, "an entry", NOW))

    return Scene(lambda: enter(one), lambda: enter(other), check)


@SCENES.add
def waiter_enters_while_others_are_confirmed(switcher: Switcher) -> Scene:
    entries, before, claim, over = QueueEntries(), held("b"), held(), held("c")
    entries.enter(EnteredClaim(before, before.identifier, "an entry", NOW))
    entries.enter(EnteredClaim(over, over.identifier, "an entry", NOW))
    confirmed: list[Claim] = []

    def enter() -> None:
        over.state = ENDED
        entries.enter(EnteredClaim(claim, claim.identifier, "an entry", NOW))

    def confirm() -> None:
        confirmed.extend([entered.claim for entered in entries.to_confirm(NOW)])

    def check() -> None:
        confirm()
        assert sorted(confirmed.count(one) for one in (before, claim)) == [1, 1]
        assert isinstance(receive(entries, over.identifier, over.keys[0]), AbandonedEntry)

    return Scene(enter, confirm, check)


@SCENES.add
def waiter_leaves_while_others_are_confirmed(switcher: Switcher) -> Scene:
    entries, waiter = QueueEntries(), new_waiter(new_claim("a"))
    entries.join(waiter)

    def check() -> None:
        assert isinstance(receive(entries, waiter.identifier, waiter.key), AbandonedEntry)
        assert receive(entries, waiter.identifier, waiter.key) is None, "released twice"

    return Scene(lambda: entries.leave(waiter), lambda: entries.to_confirm(NOW), check)


def handing_off() -> tuple[QueueEntries, Port, Claim, CohortWaiter]:
    """A lock that was granted by the queue, and its next member in the cohort."""
    entries, cohort = QueueEntries(), Cohort()
    port, holder, next_member = Port(entries), held(), new_claim("a")
    holder.cohort = next_member.cohort = cohort
    holder.has_queued, holder.hand_off_decision = True, HandOffDecision()
    cohort.holder, cohort.since = holder, NOW
    next_member.cohort_waiter = CohortWaiter(next_member, FakeWakeup())  # type: ignore[arg-type]
    cohort.add(next_member.cohort_waiter)
    holder.queue_record = port.enter(holder.identifier, holder)
    return entries, port, holder, next_member.cohort_waiter


@SCENES.add
def message_is_late_during_a_hand_off(switcher: Switcher) -> Scene:
    entries, port, holder, next_member = handing_off()
    identifier, found = holder.identifier, []

    def check() -> None:
        assert found == [None], "a lock that is handed off is released"
        complete_hand_offs(next_member.claim)
        assert receive(entries, identifier, holder.keys[0]) is None

    return Scene(
        lambda: hand_off(port, holder),  # type: ignore[arg-type]
        lambda: found.append(receive(entries, identifier, holder.keys[0])),
        check,
    )


@SCENES.add
def message_is_late_while_the_next_member_wakes(switcher: Switcher) -> Scene:
    entries, port, holder, next_member = handing_off()
    identifier, found = holder.identifier, []
    assert hand_off(port, holder)  # type: ignore[arg-type]

    def check() -> None:
        assert found == [None], "a lock that was handed off is released"

    return Scene(
        lambda: complete_hand_offs(next_member.claim),
        lambda: found.append(receive(entries, identifier, holder.keys[0])),
        check,
    )


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_entries_are_consistent_with_thread_switches_at_any_line(scene: Make) -> None:
    assert SCENES.explore(scene) > 5

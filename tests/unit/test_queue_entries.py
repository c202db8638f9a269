"""When the event loop of a subscriber has to confirm an entered lock to Redis."""

from __future__ import annotations

import math

from support.simulation import new_claim

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.entries import QueueEntries
from redis_lock_decorators._flow.queue.entry_records import EnteredClaim

NOW = 1000.0


def entered(entries: QueueEntries, confirm_at: float) -> EnteredClaim:
    """An entry whose claim holds its lock."""
    claim = new_claim("a")
    claim.mark_held(NOW)
    one = EnteredClaim(claim, claim.identifier, "an entry", confirm_at)
    entries.enter(one)
    return one


def test_claim_released_before_its_confirmation_wakes_no_loop() -> None:
    entries = QueueEntries()
    for number in range(10):
        entered(entries, NOW + 1 + number / 1000).claim.state = ENDED

    assert entries.next_confirmation(NOW) == math.inf


def test_claim_released_after_the_last_check_wakes_no_loop() -> None:
    entries = QueueEntries()
    before, held = entered(entries, NOW + 1), entered(entries, NOW + 2)

    assert entries.next_confirmation(NOW) == NOW + 1
    before.claim.state = ENDED
    assert entries.next_confirmation(NOW + 0.5) == NOW + 2
    assert entries.to_confirm(NOW + 2) == [held]
    assert entries.next_confirmation(NOW + 2) == math.inf

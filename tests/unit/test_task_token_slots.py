"""Direct calls where one task releases a lock that another has acquired."""

from __future__ import annotations

import asyncio
import gc

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)


from support.redispy_scenes import KEY

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot
from redis_lock_decorators.asyncio._task_tokens import TaskTokenSlots


def ended_task_holds(token_slots: TaskTokenSlots, deadline: float) -> TokenHold:
    """Acquire in a task that ends, until the given time."""

    async def acquire() -> TokenHold:
        hold = TokenHold(claim_on(KEY, 10))
        hold.claim.deadline = deadline
        token_slots.own().put(hold)
        return hold

    return asyncio.run(acquire())


async def to_release(token_slots: TaskTokenSlots) -> TokenHold | None:
    return token_slots.to_release(by_hand=True)


def test_task_releases_the_hold_of_the_only_task_that_acquired() -> None:
    token_slots = TaskTokenSlots()
    hold = ended_task_holds(token_slots, monotonic() + 60)

    assert asyncio.run(to_release(token_slots)) is hold


def test_task_releases_nothing_if_an_expired_hold_could_be_meant() -> None:
    token_slots = TaskTokenSlots()
    ended_task_holds(token_slots, monotonic() - 1)
    ended_task_holds(token_slots, monotonic() + 60)
    gc.collect()

    assert asyncio.run(to_release(token_slots)) is None


def test_expired_hold_prevents_only_one_release() -> None:
    token_slots = TaskTokenSlots()
    ended_task_holds(token_slots, monotonic() - 1)
    hold = ended_task_holds(token_slots, monotonic() + 60)
    gc.collect()

    assert asyncio.run(to_release(token_slots)) is None
    assert asyncio.run(to_release(token_slots)) is hold


def test_slot_has_only_its_last_acquisition() -> None:
    token_slot, first, second = (
        TokenSlot(),
        TokenHold(claim_on(KEY, 10)),
        TokenHold(claim_on(KEY, 10)),
    )
    token_slot.put(first)
    token_slot.put(second)

    first.forget()
    assert token_slot.hold is second
    second.forget()
    assert token_slot.hold is None
    assert token_slot.claim is None

"""Threads share a drop-in lock and one ends its renewal, with thread switches at any line."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators import asyncio, redislock
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot

SCENES = Scenes("_shared/redispy_tokens")


def claim() -> Claim:
    return claim_on(b"a", 10)


def renewed_hold() -> TokenHold:
    hold = TokenHold(claim())
    renewer = SimpleNamespace(add=lambda watch: None, remove=lambda watch: None)
    renewal_handle: Any = SimpleNamespace(renewer=renewer, tracked=None)
    hold.renewal_handle = renewal_handle
    return hold


@SCENES.add
def one_reschedules_while_another_ends(switcher: Switcher) -> Scene:
    hold = renewed_hold()
    return Scene(hold.reschedule_renewal, hold.forget)


@SCENES.add
def one_stops_the_renewal_while_another_ends(switcher: Switcher) -> Scene:
    hold = renewed_hold()
    return Scene(hold.stop_renewal, hold.forget)


@SCENES.add
def one_forgets_while_another_acquires(switcher: Switcher) -> Scene:
    """Another thread may hold the lock before the slot is cleared, as it was released in Redis."""
    token_slot, mine, theirs = TokenSlot(), TokenHold(claim()), TokenHold(claim())
    token_slot.put(mine)

    def check() -> None:
        assert token_slot.hold is theirs
        assert token_slot.claim is theirs.claim

    return Scene(mine.forget, lambda: token_slot.put(theirs), check)


@pytest.mark.parametrize("make", list(SCENES), ids=name_of)
def test_slots_are_consistent_with_thread_switches_at_any_line(make: Make) -> None:
    assert SCENES.explore(make) > 2


@pytest.mark.parametrize(
    "leave", [redislock.RedisLock._leave, asyncio.RedisLock._leave], ids=["thread", "task"]
)
def test_no_line_of_leaving_a_block_is_unguarded(leave: Any) -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(leave))).body[0]

    assert isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
    assert [type(statement) for statement in tree.body] == [ast.Try]

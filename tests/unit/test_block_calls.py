"""What the methods of a lock object are about while a block calls those of a subclass."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from redis_lock_decorators._shared import block_calls
from redis_lock_decorators._shared.block_calls import (
    BlockCall,
    held_here,
    note_acquired,
    to_release,
)


@pytest.fixture(autouse=True)
def calls() -> Iterator[None]:
    yield
    block_calls._call.set(None)


def interrupted(call: BlockCall) -> None:
    """End a call whose last line was interrupted, so that the context still has it."""
    block_calls._call.set(call)
    call.lock = None


def usual() -> str:
    return "usual"


def test_interrupted_call_is_of_no_effect() -> None:
    lock = object()
    interrupted(BlockCall(lock, "former", is_release=True))

    assert to_release(lock, usual, None) == held_here(lock, usual, None) == "usual"
    assert not note_acquired(lock, "new", None)


def test_interrupted_call_does_not_hide_the_one_around_it() -> None:
    lock, found = object(), list[Any]()
    call = BlockCall(lock, "held", is_release=True)

    def release() -> None:
        interrupted(BlockCall(object(), "other", is_release=True))
        found.append(to_release(lock, usual, None))

    call.run(release)

    assert found == ["held"]
    assert call.is_begun


def test_interrupted_calls_are_not_kept() -> None:
    interrupted(BlockCall(object(), "one"))
    two = BlockCall(object(), "two")

    assert two._before is None


def test_code_that_a_call_starts_uses_the_lock_as_usual_after_its_end() -> None:
    lock = object()
    contexts = list[Any]()
    BlockCall(lock, "held", is_release=True).run(lambda: contexts.append(copy_context()))

    assert contexts[0].run(to_release, lock, usual, None) == "usual"


def test_release_in_an_acquisition_releases_what_that_has_acquired() -> None:
    lock = object()
    call = BlockCall(lock)

    def acquire() -> str:
        assert to_release(lock, usual, None) == "usual"
        assert note_acquired(lock, "new", None)
        return to_release(lock, usual, None)

    assert call.run(acquire) == "new"
    assert call.acquired_instead is None


def test_what_a_release_has_acquired_takes_the_place_of_what_it_has_released() -> None:
    lock = object()
    call = BlockCall(lock, "held", is_release=True)

    assert not call.run(lambda: note_acquired(lock, "new", None))
    assert call.acquired_instead == "new"


def test_what_another_task_acquires_that_a_release_has_started_is_its_own() -> None:
    lock, releaser, other = object(), object(), object()
    call = BlockCall(lock, "held", is_release=True, owner=releaser)

    assert not call.run(lambda: note_acquired(lock, "new", other))
    assert call.acquired_instead is None
    assert call.held == "held"


def test_what_a_release_has_started_uses_the_lock_on_its_own() -> None:
    lock, releaser, other = object(), object(), object()
    call = BlockCall(lock, "held", is_release=True, owner=releaser)

    def release() -> list[str]:
        found = [held_here(lock, usual, other), to_release(lock, usual, other)]
        return [*found, to_release(lock, usual, other), held_here(lock, usual, releaser)]

    assert call.run(release) == ["held", "held", "usual", "held"]

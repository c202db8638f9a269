"""Calls when a client or factory is freed."""

from __future__ import annotations

import weakref

from redis_lock_decorators._io import weak_references
from redis_lock_decorators._io.weak_references import MANY, call_when_freed, weak


class Thing:
    """Something that is freed, or the target of a call."""

    def __init__(self) -> None:
        self.calls = 0

    def note(self) -> None:
        self.calls += 1


def test_each_target_is_called_once() -> None:
    thing, one, other = Thing(), Thing(), Thing()
    for target in (one, other, one):
        call_when_freed(thing, Thing.note, target)

    del thing

    assert (one.calls, other.calls) == (1, 1)


def test_target_is_not_kept_alive() -> None:
    thing, target = Thing(), Thing()
    found = weakref.ref(target)
    call_when_freed(thing, Thing.note, target)

    del target

    assert found() is None


def test_targets_of_ended_loops_are_forgotten() -> None:
    thing, kept = Thing(), Thing()
    call_when_freed(thing, Thing.note, kept)
    for _ in range(10 * MANY):
        call_when_freed(thing, Thing.note, Thing())

    assert len(weak_references._watches[id(thing)].calls) <= MANY + 3
    del thing
    assert kept.calls == 1


def test_nothing_remains_of_what_is_freed() -> None:
    before = set(weak_references._watches)
    thing, target = Thing(), Thing()
    call_when_freed(thing, Thing.note, target)

    del thing

    assert set(weak_references._watches) == before


def test_object_without_weak_references_is_kept_alive() -> None:
    call_when_freed([], Thing.note, Thing())

    assert weak(5)() == 5

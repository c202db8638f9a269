"""Weak references to clients and factories, and calls when one of them is freed.

Each of them has one weak reference with a callback, whatever the number of event loops that use it.
Up to Python 3.11, the interpreter crashes if an object that has several is freed, and the garbage
collector frees one of these references at that moment: what belongs to an event loop that has ended
is such garbage for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import ref

T = TypeVar("T")
#: A weak reference to the target of a call, and the call.
_Call = tuple[Callable[[], Any], Callable[[Any], object]]
#: The number of calls from which on those are looked for whose target was freed.
MANY = 16


class _Watch:
    """What is called when an object is freed."""

    __slots__ = ("calls", "find", "many")

    def __init__(self, watched: Any) -> None:
        self.find = ref(watched, partial(_on_freed, id(watched)))

        #: any thread: by the identity of the target
        self.calls: dict[int, _Call] = {}
        self.many = MANY

    def remove_unused(self) -> None:
        """Remove calls whose target was freed."""
        calls = self.calls
        for number, call in list(calls.items()):
            if call[0]() is None:
                removed = calls.pop(number, call)
                if removed is not call:  # another thread has put it there meanwhile
                    calls.setdefault(number, removed)
        self.many = MANY + 2 * len(calls)


#: any thread: by the identity of an object, which is not reused before its callback has returned
_watches: dict[int, _Watch] = {}


def weak(thing: Any) -> Callable[[], Any]:
    """A weak reference; a strong one if the class of the object allows no weak references."""
    try:
        return ref(thing)
    except TypeError:
        return lambda: thing


def call_when_freed(thing: Any, call: Callable[[T], object], target: T) -> None:
    """Call ``call(target)`` when an object is freed, on any thread, if the target lives then.

    A later call for the same target replaces an earlier one. Nothing is called for an object
    without weak references, which ``weak`` keeps alive.
    """
    try:
        watch = _Watch(thing)
    except TypeError:
        return
    watch = _watches.setdefault(id(thing), watch)
    watch.calls[id(target)] = ref(target), call
    if len(watch.calls) > watch.many:
        watch.remove_unused()


def _on_freed(number: int, gone: object) -> None:
    watch = _watches.get(number)
    if watch is not None and watch.find is gone:  # else one that another thread was faster to make
        _watches.pop(number, None)
        for find, call in list(watch.calls.values()):
            target = find()
            if target is not None:
                call(target)

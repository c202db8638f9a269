"""Context variables that finalizers may set.

CPython 3.10 and 3.11 may collect garbage in the middle of ``ContextVar.set``, of any variable. If a
finalizer then sets a variable of ours, the interpreter frees the values that the interrupted call
still reads, and crashes. Since 3.12 garbage is collected between two instructions only.

So those values are kept for some collections (``decisions/0178``).
"""

from __future__ import annotations

import gc
import sys
from contextvars import Context, ContextVar, copy_context
from functools import partial
from threading import local
from typing import Any, TypeVar

V = TypeVar("V")

#: More collections than one call of ``ContextVar.set`` allocates objects.
MANY_COLLECTIONS = 20


class _Collection:
    """The collection of garbage that is running, if any."""

    #: What the garbage collector says of it. Written by the garbage collector, read by any thread.
    start: Any = None


# Set at the end of a collection: another name of ``__dict__``, so ``start`` is no longer there.
_Collection.stop = vars(_Collection)["__dict__"]  # type: ignore[attr-defined]
_collection = _Collection()
#: As ``_collection``, for the thread that collects. Written by the garbage collector.
_of_thread: Any = local()

#: The contexts before finalizers changed them, by the number of collections by then.
#: Used by any thread.
_kept: dict[int, Context] = {}

if sys.implementation.name == "cpython" and sys.version_info < (3, 12):
    # The class of ``threading`` may be that of greenlets.
    for kind in object.__subclasses__():
        if (kind.__module__, kind.__name__) == ("_thread", "_local"):
            _of_thread = kind()
    # Not in Python code: an exception of a signal handler would be ignored there.
    gc.callbacks += [partial(setattr, _collection), partial(setattr, _of_thread)]


def assign(variable: ContextVar[V], value: V) -> None:
    """Set a context variable, also in a finalizer."""
    if _kept:
        _forget_old_contexts()
    if _collection.start is None or not _collects():
        variable.set(value)
        return
    _kept.setdefault(_collections(), copy_context())
    variable.set(value)
    # CPython caches a reference to the value, which it does not count, until the context changes.
    copy_context().run(int)


def _collects() -> bool:
    """Return whether it is this thread that collects."""
    return getattr(_of_thread, "start", None) is _collection.start


def _forget_old_contexts() -> None:
    """Forget those that no call reads any longer."""
    latest = _collections() - MANY_COLLECTIONS
    for number in list(_kept):
        if number < latest:
            _kept.pop(number, None)


def _collections() -> int:
    """Return how many collections have ended."""
    return sum(generation["collections"] for generation in gc.get_stats())

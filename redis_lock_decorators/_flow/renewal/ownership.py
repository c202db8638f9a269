"""Find out whether any code can still release a lease that is renewed.

The owner of a lease is the object without which no code can release it. The owner refers to a mark,
and so does the ``TrackedLease``. Once the owner is deleted, only the ``TrackedLease`` does.

Weak references to the owner do not show that: the garbage collector clears those to a reference
cycle before it closes the generators in it, whose blocks then still run. It clears no reference to
the mark until it deletes the owner. No code is called when that happens: an exception that a signal
handler raises in ``__del__`` would be lost.
"""

from __future__ import annotations

import sys
from typing import Protocol


class Tracked(Protocol):
    """A ``TrackedLease``.

    Attributes:
        ownership: the mark, which the owner has too.
    """

    ownership: object


class _Alone:
    """An object that alone refers to a mark."""

    __slots__ = ("ownership",)

    def __init__(self) -> None:
        self.ownership = object()


def references(one: Tracked) -> int:
    """Return how many references to the mark there are, and those of this call."""
    return sys.getrefcount(one.ownership)


#: The number of references to a mark without an owner.
ALONE = references(_Alone())


def has_owner(one: Tracked) -> bool:
    """Whether the owner still exists; the garbage collector may be about to delete it."""
    return references(one) > ALONE

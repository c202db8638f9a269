"""A slot for one object that several threads share without a lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class AtomicSlot(Generic[T]):
    """Holds at most one object; the first one set stays until it is removed.

    It rests on ``get``, ``setdefault`` and ``pop`` of a ``dict``, each of which is atomic, with the
    GIL and without. So a thread that is interrupted by an exception after ``setdefault`` still
    finds out by ``get`` whether its object is the one in the slot.
    """

    __slots__ = ("_items", "get")

    def __init__(self) -> None:
        self._items: dict[str, T] = {}  #: any thread

        #: The object, or None. No method, as each wait and each renewed lease calls it.
        self.get: Callable[[], T | None] = partial(self._items.get, "")

    def setdefault(self, item: T) -> T:
        """Set the object if the slot is empty; return the one that is there then."""
        return self._items.setdefault("", item)

    def remove(self, item: T) -> None:
        """Empty the slot if this object is in it."""
        if self._items.get("") is item:
            removed = self._items.pop("", None)
            if removed is not None and removed is not item:  # another thread has replaced it
                self._items.setdefault("", removed)

"""Values by client, which live as long as the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class PerClient(Generic[T]):
    """A value for each client, which is removed when the client is garbage-collected.

    Clients are compared by identity: two that are equal may lead to different servers. A client
    without weak references is kept alive. Used by all threads, without a lock.
    """

    __slots__ = ("_known",)  #: any thread

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, client: Any) -> T | None:
        """The value of a client, or None."""
        entry = self._known.get(id(client))
        return entry[1] if entry is not None and entry[0]() is client else None

    def setdefault(self, client: Any, value: T) -> T:
        """The value of a client; set to this one if there is none."""
        known, number = self._known, id(client)

        def forget(gone: object) -> None:
            entry = known.get(number)
            if entry is not None and entry[0] is gone:
                known.pop(number, None)  # the number is not reused before this function returns

        new = (weak(client, forget), value)
        entry = known.setdefault(number, new)
        if entry[0]() is not client:  # it belongs to another client, which is being collected
            known[number] = entry = new
        return entry[1]


def weak(client: Any, forget: Callable[[object], None] | None = None) -> Callable[[], Any]:
    """A weak reference to a client; a strong one if its class allows no weak references."""
    try:
        return ref(client, forget)
    except TypeError:
        return lambda: client

"""Values by client, which live as long as the client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from redis_lock_decorators._io.weak_references import call_when_freed, weak

T = TypeVar("T")


class PerClient(Generic[T]):
    """A value for each client, which is removed when the client is garbage-collected.

    Clients are compared by identity: two that are equal may lead to different servers. A client
    without weak references is kept alive. Used by all threads, without a lock.
    """

    __slots__ = ("__weakref__", "_known")

    def __init__(self) -> None:
        #: any thread
        self._known: dict[int, tuple[Callable[[], Any], T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def values(self) -> list[T]:
        """The values of all clients."""
        return [value for _, value in list(self._known.values())]

    def get(self, client: Any) -> T | None:
        """The value of a client, or None."""
        entry = self._known.get(id(client))
        return entry[1] if entry is not None and entry[0]() is client else None

    def setdefault(self, client: Any, value: T) -> T:
        """The value of a client; set to this one if there is none."""
        known, number = self._known, id(client)
        new = (weak(client), value)
        entry = known.setdefault(number, new)
        if entry[0]() is not client:  # it belongs to another client, which is being collected
            known[number] = entry = new
        if entry is new:
            call_when_freed(client, partial(PerClient._forget, number=number), self)
        return entry[1]

    def _forget(self, number: int) -> None:
        """Remove the value of a client that is freed; its number is not reused before."""
        entry = self._known.get(number)
        if entry is not None and entry[0]() is None:
            self._known.pop(number, None)

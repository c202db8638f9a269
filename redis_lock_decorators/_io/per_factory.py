"""Values by client factory, which live as long as the factory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Generic, TypeVar

from redis_lock_decorators._io.weak_references import call_when_freed, weak

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    """The value of a factory, and references to the parts of the factory."""

    parts: tuple[Callable[[], Any], ...]
    value: T


class PerFactory(Generic[T]):
    """A value for each factory, which is removed when the factory is garbage-collected.

    A bound method is a new object at each access, so its parts, object and function, identify it
    and keep its value. Factories are compared by identity. A factory without weak references, as of
    a class with ``__slots__``, is kept alive. Used by all threads, without a lock.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, ...], _Entry[T]] = {}  #: any thread

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, factory: Callable[..., Any]) -> T | None:
        """The value of a factory, or None."""
        parts = _parts(factory)
        entry = self._entries.get(_key(parts))
        return entry.value if entry is not None and _is_of(entry, parts) else None

    def values(self) -> list[T]:
        """The values of all living factories."""
        return [entry.value for entry in list(self._entries.values())]

    def setdefault(self, factory: Callable[..., Any], value: T) -> T:
        """The value of a factory; set to this one if there is none."""
        parts = _parts(factory)
        key = _key(parts)
        entries = self._entries
        new = _Entry(tuple(map(weak, parts)), value)
        while not _is_of(entry := entries.setdefault(key, new), parts):
            _drop(entries, key, entry)  # it belongs to a collected factory with the same id
        if entry is new:
            for part in parts:
                call_when_freed(part, PerFactory._drop_freed, self)
        return entry.value

    def _drop_freed(self) -> None:
        """Remove the entries of factories that are freed."""
        for key, entry in list(self._entries.items()):
            if any(find() is None for find in entry.parts):
                _drop(self._entries, key, entry)


def _parts(factory: Callable[..., Any]) -> tuple[Any, ...]:
    """The objects that identify a factory, and live as long as it does."""
    if isinstance(factory, MethodType):
        return factory.__self__, factory.__func__
    return (factory,)


def _key(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(map(id, parts))


def _is_of(entry: _Entry[Any], parts: tuple[Any, ...]) -> bool:
    return all(alive() is part for alive, part in zip(entry.parts, parts, strict=True))


def _drop(
    entries: dict[tuple[int, ...], _Entry[T]], key: tuple[int, ...], entry: _Entry[T]
) -> None:
    """Remove an entry, but not a new one that another thread has put there meanwhile."""
    removed = entries.pop(key, None)
    if removed is not None and removed is not entry:
        entries.setdefault(key, removed)

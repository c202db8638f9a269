"""What belongs to the factories of clients, for as long as these live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Generic, TypeVar
from weakref import ref

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    """What belongs to a factory, and what gives the parts of the factory that are alive."""

    parts: tuple[Callable[[], Any], ...]
    value: T


class PerFactory(Generic[T]):
    """A value for each factory, which goes with it: also a client that was made for one lock only.

    A bound method is made anew each time that it is looked up, so its value goes with its object.
    Factories are told apart by what they are, not by what they equal. One that cannot be referred
    to weakly, of a class with ``__slots__``, keeps its value. Used by all threads, without a lock.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, ...], _Entry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, factory: Callable[..., Any]) -> T | None:
        """The value of a factory, if there is one."""
        parts = _parts(factory)
        entry = self._entries.get(_place(parts))
        return entry.value if entry is not None and _is_of(entry, parts) else None

    def values(self) -> list[T]:
        """The values of all factories that there are."""
        return [entry.value for entry in list(self._entries.values())]

    def setdefault(self, factory: Callable[..., Any], value: T) -> T:
        """The value of a factory: this one, unless there is one already."""
        parts = _parts(factory)
        place = _place(parts)
        entries = self._entries
        new = _Entry(tuple([_weak(part, entries, place) for part in parts]), value)
        while not _is_of(entry := entries.setdefault(place, new), parts):
            _drop(entries, place, entry)  # it was of another, whose memory this one has now
        return entry.value


def _parts(factory: Callable[..., Any]) -> tuple[Any, ...]:
    """What a factory is told apart by, and lives with."""
    if isinstance(factory, MethodType):
        return factory.__self__, factory.__func__
    return (factory,)


def _place(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(map(id, parts))


def _is_of(entry: _Entry[Any], parts: tuple[Any, ...]) -> bool:
    return all(alive() is part for alive, part in zip(entry.parts, parts, strict=True))


def _weak(
    part: Any, entries: dict[tuple[int, ...], _Entry[T]], place: tuple[int, ...]
) -> Callable[[], Any]:
    """What gives a part while it lives, and takes the entry out when it ends."""

    def gone(reference: object) -> None:
        entry = entries.get(place)
        if entry is not None and any(known is reference for known in entry.parts):
            _drop(entries, place, entry)

    try:
        return ref(part, gone)
    except TypeError:
        return lambda: part


def _drop(
    entries: dict[tuple[int, ...], _Entry[T]], place: tuple[int, ...], entry: _Entry[T]
) -> None:
    """Take out an entry, though another thread may put a new one in its place meanwhile."""
    removed = entries.pop(place, None)
    if removed is not None and removed is not entry:
        entries.setdefault(place, removed)

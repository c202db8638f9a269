"""The parts of an object that may appear in its text."""

from __future__ import annotations

from collections import deque
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import MappingProxyType, ModuleType
from typing import Any
from uuid import UUID

#: The types whose text shows their value and nothing else.
PLAIN = frozenset({str, bytes, int, float, bool, type(None), UUID, Decimal, date, timedelta})
#: The text of a class or module never shows its contents.
_OPAQUE = (type, ModuleType)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SERIES = (list, tuple, deque, set, frozenset, *_VIEWS)
_MAPPINGS = (dict, MappingProxyType)


def parts_of(value: object) -> list[object]:
    """Return the contents and attributes of an object; none if it cannot be inspected.

    Its class is taken from ``type()``: ``isinstance`` would make a proxy, such as Django's lazy
    user, load its object.
    """
    try:
        if type(value) in PLAIN or issubclass(type(value), _OPAQUE):
            return []
        return [*_contents(value), *_fields(value)]
    except Exception:  # the object's own code may raise anything
        return []


def _contents(value: Any) -> list[object]:
    """Return what an object of a built-in class holds other than in attributes."""
    kind = type(value)
    if issubclass(kind, _SERIES):
        return list(value)
    if issubclass(kind, _MAPPINGS):
        return [*value.keys(), *value.values()]
    if issubclass(kind, BaseException):
        return list(value.args)
    if issubclass(kind, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if kind is slice:
        return [value.start, value.stop, value.step]
    return []


def _fields(value: object) -> list[object]:
    """Return the values of an object's attributes, and of the containers of its class."""
    kind: Any = type(value)
    kept = getattr(value, "__dict__", {})
    return [*dict(kept).values(), *(getattr(value, name, None) for name in _names(kind))]


@lru_cache(maxsize=256)
def _names(kind: type) -> tuple[str, ...]:
    """Return the slots and shared containers of a class and its bases."""
    names = {name for base in kind.__mro__ for name in (*_slots(base), *_shared(base))}
    return tuple(sorted(names - {"__dict__", "__weakref__"}))


def _slots(kind: type) -> list[str]:
    """Return the attribute names of a class's slots, mangled as Python does."""
    found = kind.__dict__.get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    own = kind.__name__.lstrip("_")
    return [
        f"_{own}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]


def _shared(kind: type) -> list[str]:
    """Return the class attributes that are containers, except those of Python and of enums."""
    return [
        name
        for name, kept in kind.__dict__.items()
        if isinstance(kept, (*_SERIES, *_MAPPINGS)) and not (name[:1] == name[-1:] == "_")
    ]

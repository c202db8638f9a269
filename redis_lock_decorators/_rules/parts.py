"""What an object holds, of which its text may be made."""

from __future__ import annotations

from collections import deque
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import MappingProxyType, ModuleType
from typing import Any
from uuid import UUID

#: The text of these says their value and nothing else.
PLAIN = frozenset({str, bytes, int, float, bool, type(None), UUID, Decimal, date, timedelta})
#: A class or module may be shown, but never with what is in it.
_OPAQUE = (type, ModuleType)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SERIES = (list, tuple, deque, set, frozenset, *_VIEWS)
_MAPPINGS = (dict, MappingProxyType)


def parts_of(value: object) -> list[object]:
    """The contents and attributes of an object.

    Nothing if it cannot be looked into. Its class is told by ``type``: ``isinstance`` would have
    a proxy, such as Django's of a user, get what it stands for.
    """
    try:
        if type(value) in PLAIN or issubclass(type(value), _OPAQUE):
            return []
        return [*_contents(value), *_fields(value)]
    except Exception:  # whatever the object's own code raises
        return []


def _contents(value: Any) -> list[object]:
    """What an object of a class of Python's own holds other than in attributes."""
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
    """What an object keeps in its attributes, and its class for all of its objects."""
    kind: Any = type(value)
    kept = getattr(value, "__dict__", {})
    return [*dict(kept).values(), *(getattr(value, name, None) for name in _names(kind))]


@lru_cache(maxsize=256)
def _names(kind: type) -> tuple[str, ...]:
    """The attributes of a class, and of those above it, that are no items of a ``__dict__``."""
    names = {name for base in kind.__mro__ for name in (*_slots(base), *_shared(base))}
    return tuple(sorted(names - {"__dict__", "__weakref__"}))


def _slots(kind: type) -> list[str]:
    """The slots of a class, as Python calls them."""
    found = kind.__dict__.get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    own = kind.__name__.lstrip("_")
    return [
        f"_{own}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]


def _shared(kind: type) -> list[str]:
    """The containers among the attributes of a class, but for those of Python and of enums."""
    return [
        name
        for name, kept in kind.__dict__.items()
        if isinstance(kept, (*_SERIES, *_MAPPINGS)) and not (name[:1] == name[-1:] == "_")
    ]

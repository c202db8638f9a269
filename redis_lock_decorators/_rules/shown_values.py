"""How a wrong argument is shown in an error: without passwords, and never at length."""

from __future__ import annotations

from functools import partial

#: The types whose repr shows only what the program gave.
_PLAIN = (str, bytes, bytearray, int, float, bool, list, tuple, set, frozenset, dict, type(None))


def shown_value(value: object, longest: int = 80) -> str:
    """Return a short text for a value; of an object it is the type, as its repr may be secret."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value):
        return _named(value)
    if not isinstance(value, _PLAIN):
        return f"an object of type {type(value).__name__}"
    try:
        text = repr(value)
    except Exception:  # an item's own code may raise anything; an integer may be too long
        return f"an object of type {type(value).__name__} that cannot be shown"
    if "://" in text and ("@" in text or "password" in text):
        return "an address (not shown: it may hold a password)"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _named(function: object) -> str:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else f"an object of type {type(function).__name__}"

"""The text of enum members, the same in every Python version; 3.10 differs for some."""

from __future__ import annotations

import sys
from enum import Enum, Flag, IntEnum, IntFlag

_IS_OLD = sys.version_info < (3, 11)
_OWN_TEXTS = (Enum.__str__, Flag.__str__)


def settled(value: object) -> object:
    """Return an object whose ``str()`` is the same in every Python version.

    Of a member of IntEnum or IntFlag its number; of other enums its name; else the value itself.
    """
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__str__ not in _OWN_TEXTS:  # its class defines __str__
        return value
    if isinstance(value, (IntEnum, IntFlag)):
        return int(value)
    return flag_text(value) if isinstance(value, Flag) else str(value)


def settled_for_format(value: object) -> object:
    """Return an object whose ``format()`` is the same in every Python version."""
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__format__ is not Enum.__format__:  # its class defines __format__
        return value
    return int(value) if isinstance(value, (IntEnum, IntFlag)) else str(settled(value))


def flag_text(value: Flag) -> str:
    """Return a flag as Python 3.11 and later write it: its members in order of definition."""
    kind, bits = type(value), int(value.value)
    if value.name is not None and "|" not in value.name:
        return f"{kind.__name__}.{value.name}"
    singles = [part for part in kind.__members__.values() if _is_single(int(part.value))]
    names = {part.value: part.name for part in singles if part.value & bits}  # without aliases
    joined = "|".join(map(str, names.values()))
    return f"{kind.__name__}.{joined}" if joined else f"{kind.__name__}({bits})"


def _is_single(bits: int) -> bool:
    return bits > 0 and bits & (bits - 1) == 0

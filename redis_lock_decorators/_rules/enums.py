"""Members of enums as all Pythons write them: 3.10 by itself writes some in another way."""

from __future__ import annotations

import sys
from enum import Enum, Flag, IntEnum, IntFlag

_IS_OLD = sys.version_info < (3, 11)
_OWN_TEXTS = (Enum.__str__, Flag.__str__)


def settled(value: object) -> object:
    """What ``str`` writes alike for a member in every Python; other objects themselves.

    A number of those that are to be used as numbers, such as IntEnum; else the member's name.
    """
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__str__ not in _OWN_TEXTS:  # it has a text of its own
        return value
    if isinstance(value, (IntEnum, IntFlag)):
        return int(value)
    return flag_text(value) if isinstance(value, Flag) else str(value)


def settled_for_format(value: object) -> object:
    """What ``format`` writes alike for a member in every Python; other objects themselves."""
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__format__ is not Enum.__format__:  # it has a format of its own
        return value
    return int(value) if isinstance(value, (IntEnum, IntFlag)) else str(settled(value))


def flag_text(value: Flag) -> str:
    """A flag as Python writes it from 3.11 on: its parts in the order of their definition."""
    kind, bits = type(value), int(value.value)
    if value.name is not None and "|" not in value.name:
        return f"{kind.__name__}.{value.name}"
    singles = [part for part in kind.__members__.values() if _is_single(int(part.value))]
    names = {part.value: part.name for part in singles if part.value & bits}  # without aliases
    joined = "|".join(map(str, names.values()))
    return f"{kind.__name__}.{joined}" if joined else f"{kind.__name__}({bits})"


def _is_single(bits: int) -> bool:
    return bits > 0 and bits & (bits - 1) == 0

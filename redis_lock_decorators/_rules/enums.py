"""The text of enum members, the same in every Python version; 3.10 differs for some."""

from __future__ import annotations

import sys
from enum import Enum, Flag, IntEnum, IntFlag
from functools import reduce
from operator import or_
from typing import cast

_IS_OLD = sys.version_info < (3, 11)
_OWN_TEXTS = (Enum.__str__, Flag.__str__)
_OWN_REPRS = (Enum.__repr__, Flag.__repr__)


def settled(value: object) -> object:
    """Return an object whose ``str()`` is the same in every Python version.

    Of a member of IntEnum or IntFlag its number; of other enums its name; else the value itself.
    """
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__str__ not in _OWN_TEXTS:  # its class defines __str__
        return value
    if isinstance(value, (IntEnum, IntFlag)):
        return _number(value)
    return flag_text(value) if isinstance(value, Flag) else str(value)


def settled_for_format(value: object) -> object:
    """Return an object whose ``format()`` is the same in every Python version."""
    if not _IS_OLD or not isinstance(value, Enum):
        return value
    if type(value).__format__ is not Enum.__format__:  # its class defines __format__
        return value
    return _number(value) if isinstance(value, (IntEnum, IntFlag)) else str(settled(value))


def flag_text(value: Flag) -> str:
    """Return a flag as Python 3.11 and later write it: its members in order of definition."""
    kind, bits = type(value), int(value.value)
    if value.name is not None and "|" not in value.name:
        return f"{kind.__name__}.{value.name}"
    singles = [part for part in kind.__members__.values() if _is_single(int(part.value))]
    names = {part.value: part.name for part in singles if part.value & bits}  # without aliases
    joined = "|".join(map(str, names.values()))
    return f"{kind.__name__}.{joined}" if joined else f"{kind.__name__}({bits})"


def attribute_of(value: object, name: str) -> object:
    """Return the ``name`` or ``value`` of an enum member, or that attribute of another object.

    Raises:
        TypeError: it is the name of a flag without one, which differs between Python versions.
    """
    if isinstance(value, IntFlag) and int(value) < 0:
        value = type(value)(positive(value))
    if name == "name" and is_unnamed(value):
        raise TypeError(
            f"the name of {value!r}, a flag of several members, differs between Python versions: "
            "use its value"
        )
    return getattr(value, name)


def is_unnamed(value: object) -> bool:
    """Whether this is a flag without a name: several members, none, or unknown bits.

    Its name and its ``repr()`` differ between Python versions.
    """
    if not issubclass(type(value), Flag):  # isinstance would make a lazy proxy load its object
        return False
    flag = cast(Flag, value)
    return all(flag.value != member.value for member in type(flag).__members__.values())


def shown_forms(flag: Flag, is_alone: bool) -> list[str]:
    """Return the texts of an unnamed flag that differ between Python versions.

    The ``str()`` of a flag that ``is_alone``, outside of another object, is made the same.
    """
    shown = [repr(flag)] if type(flag).__repr__ in _OWN_REPRS else []
    if not is_alone and type(flag).__str__ in _OWN_TEXTS and not isinstance(flag, IntFlag):
        shown.append(str(flag))
    return shown


def positive(flag: IntFlag) -> int:
    """Return the number of a flag that was inverted, as Python 3.11 and later count it."""
    bits = reduce(or_, (int(member) for member in type(flag).__members__.values()), 0)
    number = int(flag)
    return number if number >= 0 else (1 << max(bits.bit_length(), number.bit_length())) + number


def _number(member: IntEnum | IntFlag) -> int:
    return positive(member) if isinstance(member, IntFlag) else int(member)


def _is_single(bits: int) -> bool:
    return bits > 0 and bits & (bits - 1) == 0

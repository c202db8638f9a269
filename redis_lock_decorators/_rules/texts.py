"""Arguments of a call as text for a lock's name: the same text in every process, or an error."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from dataclasses import is_dataclass
from enum import Enum, Flag, IntEnum, IntFlag
from functools import partial

import six

from redis_lock_decorators.errors import LockNameError

#: An address in memory, as a default repr shows it. Longer numbers are digests and the like.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|<[^<>]*0x[0-9a-fA-F]{6,16}(?![0-9a-fA-F])[^<>]*>")
#: The text of these says their value and nothing else.
_PLAIN = frozenset({str, int, float, bool, type(None)})
_OF_BYTES = (bytes.__str__, bytearray.__str__)
#: What holds other objects, and shows them in its text.
_CONTAINERS = (list, tuple, deque, Set, Mapping)
#: Not more of an object is looked at; a container that has more is refused.
MOST_PARTS = 5000


def as_text(value: object) -> str:
    """An argument as text; braces are escaped, so that no argument picks a cluster slot.

    Raises:
        LockNameError: the text may differ between processes (a default repr, a set).
    """
    if isinstance(value, (str, bytes)):
        return escaped(six.ensure_str(value, errors="surrogateescape"))
    return escaped(stable_text(value, written(settled(value))))


def written(value: object) -> str:
    """``str(value)``, of bytes too where Python was told to refuse that (``-bb``)."""
    return repr(value) if type(value).__str__ in _OF_BYTES else str(value)


def settled(value: object) -> object:
    """An enum's member as all Pythons write it: 3.10 by itself writes some in another way.

    A number of those that are to be used as numbers, such as IntEnum; else the member's name.
    """
    if sys.version_info >= (3, 11) or not isinstance(value, Enum):
        return value
    if type(value).__str__ not in (Enum.__str__, Flag.__str__):  # it has a text of its own
        return value
    return int(value) if isinstance(value, (IntEnum, IntFlag)) else str(value)


def stable_text(value: object, text: str) -> str:
    """``text``, made from ``value``, if every process would make the same.

    Raises:
        LockNameError: it would not, or nobody can tell.
    """
    if type(value) in _PLAIN:
        return text
    if _ADDRESS.search(text):
        raise _differs(text)
    if text.startswith("<") and text.endswith(">") and _is_described(value):
        raise LockNameError(
            f"a lock's name would hold {text:.80}, which describes a {type(value).__name__} and "
            'may not tell it from others: name a field of it ("page:{request.path}") or give its '
            "class a __str__"
        )
    _refuse_changing(value, text)
    return text


def escaped(text: str) -> str:
    """Braces written as %7B and %7D: in a cluster they would choose the slot.

    The result is plain: markup, of a class of its own, would change the text it is joined to.
    """
    text = plain(text)
    if "{" in text or "}" in text:
        return text.replace("{", "%7B").replace("}", "%7D")
    return text


def plain(text: str) -> str:
    """The characters of a text, without the behaviour of its class."""
    return text if type(text) is str else str.__str__(text)


def _is_described(value: object) -> bool:
    """Whether an object's text is what its repr says of it, other than of a class."""
    return value.__class__.__str__ is object.__str__ and not isinstance(value, type)


def _refuse_changing(value: object, text: str) -> None:
    """Refuse an object whose text, or that of one it shows, another process would not make."""
    for part in _shown(value):
        is_unordered = isinstance(part, (Set, Mapping, ValuesView))
        if is_unordered and (part is value or repr(part) in text):
            raise LockNameError(
                f"a lock's name would hold {part!r:.80}, whose order may differ between "
                "processes: name its parts, or sorted(…) of it"
            )
        if type(part) not in _PLAIN and any(form in text for form in _addresses(part)):
            raise _differs(text)


def _addresses(value: object) -> tuple[str, str, str]:
    number = id(value)
    return f"{number:x}", f"{number:X}", str(number)


def _shown(value: object) -> Iterator[object]:
    """An object and what its text may be made of, each once.

    Raises:
        LockNameError: they are too many.
    """
    found = {id(value): value}
    waiting = [value]
    while waiting and len(found) <= MOST_PARTS:
        yield (whole := waiting.pop())
        for part in _parts(whole):
            if id(part) not in found:
                found[id(part)] = part
                waiting.append(part)
    if waiting and isinstance(value, _CONTAINERS):
        raise LockNameError(
            f"a lock's name would hold a {type(value).__name__} of very many parts, of which "
            'nobody knows that they are the same in every process: name a field of it ("{x.id}")'
        )


def _differs(text: str) -> LockNameError:
    return LockNameError(
        f"a lock's name would hold {text:.80}, which differs in every process and so locks "
        'nothing: name a field of it ("order:{order.id}") or give its class a __str__'
    )


def _parts(value: object) -> Iterable[object]:
    """What the text of an object may be made of."""
    if isinstance(value, (str, bytes, type)):
        return ()
    if isinstance(value, (list, tuple, deque)):
        return list(value)
    if isinstance(value, BaseException):
        return value.args
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, slice):
        return (value.start, value.stop, value.step)
    kept = _fields(value)
    if is_dataclass(value) or _is_described(value):
        return kept
    return [part for part in kept if isinstance(part, _CONTAINERS)]


def _fields(value: object) -> list[object]:
    """What an object keeps in its attributes."""
    slots = (name for kind in type(value).__mro__ for name in _slots(kind))
    kept = getattr(value, "__dict__", {})
    return [*dict(kept).values(), *(getattr(value, name, None) for name in slots)]


def _slots(kind: type) -> list[str]:
    """The attributes of a class that are no items of a ``__dict__``, as Python calls them."""
    found = kind.__dict__.get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    own = kind.__name__.lstrip("_")
    return [
        f"_{own}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]

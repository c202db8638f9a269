"""Arguments as text for a lock's name: the same text in every process, or an error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from itertools import islice
from typing import Any

import six

from redis_lock_decorators._rules.enums import is_unnamed, settled, shown_forms
from redis_lock_decorators._rules.interruptions import DIGITS, is_from_python
from redis_lock_decorators._rules.main_module import with_import_names
from redis_lock_decorators._rules.parts import PLAIN, parts_of
from redis_lock_decorators.errors import LockNameError

#: A memory address, as a default repr shows it. Longer numbers are digests and the like.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|<[^<>]*0x[0-9a-fA-F]{6,16}(?![0-9a-fA-F])[^<>]*>")
_OF_BYTES = (bytes.__str__, bytearray.__str__)
_UNORDERED = (Set, Mapping, ValuesView)
#: The types whose text shows the objects that they contain.
_CONTAINERS = (list, tuple, deque, *_UNORDERED)
#: The text of every set, dict or view that is not empty contains one of these.
_SIGNS = ("{", "([")
#: The types whose text contains the text of each item.
_WHOLE: tuple[object, ...] = (set.__repr__, frozenset.__repr__, dict.__repr__)
#: A number that may be a memory address.
_LONG_NUMBER = re.compile(r"[0-9a-fA-F]{6}")
#: The most parts of an object that are checked; one that shows more is refused.
MOST_PARTS = 5000
#: The most parts that are checked if the text of a class with __str__ shows no set or dict.
NEAR_PARTS = 16


def as_text(value: object) -> str:
    """Return an argument as text; braces are escaped, so that no argument forms a hash tag.

    Raises:
        LockNameError: the text may differ between processes (a default repr, a set).
    """
    if isinstance(value, (str, bytes)):
        return escaped(six.ensure_str(value, errors="surrogateescape"))
    return escaped(stable_text(value, written(settled(value))))


def written(value: object) -> str:
    """Return ``str(value)``, also of bytes under ``python -bb``.

    Raises:
        LockNameError: it is an integer of more digits than Python writes.
    """
    try:
        return repr(value) if type(value).__str__ in _OF_BYTES else str(value)
    except ValueError as error:
        if type(value) is not int or not is_from_python(error, DIGITS):
            raise
        raise LockNameError(
            "a lock's name would hold an integer of very many digits: name a part or a digest of it"
        ) from error


def stable_text(value: object, text: str) -> str:
    """Return ``text``, made from ``value``, if it is the same in every process.

    Only the names of classes of the main module are made the same.

    Raises:
        LockNameError: it is not, or that cannot be determined.
    """
    if type(value) in PLAIN:
        return text
    if _ADDRESS.search(text):
        raise _differs(text)
    if text.startswith("<") and text.endswith(">") and _is_described(value):
        raise _describes(text, value)
    _refuse_changing(value, text)
    return with_import_names(text)


def escaped(text: str) -> str:
    """Escape braces as %7B and %7D: in a cluster they would form a hash tag.

    The result is a plain str: a subclass such as markup would change the text it is joined to.
    """
    text = plain(text)
    if "{" in text or "}" in text:
        return text.replace("{", "%7B").replace("}", "%7D")
    return text


def plain(text: str) -> str:
    """Return a text as str, without the behaviour of a subclass."""
    return text if type(text) is str else str.__str__(text)


def _is_described(value: object) -> bool:
    """Whether an object, other than a class, has no ``__str__`` of its own."""
    return value.__class__.__str__ is object.__str__ and not isinstance(value, type)


def _describes(text: str, value: object) -> LockNameError:
    return LockNameError(
        f"a lock's name would hold {text:.80}, which describes a {type(value).__name__} and "
        'might not be unique: name a field of it ("page:{request.path}") or give its class a '
        "__str__"
    )


def _shows_described(part: object, text: str) -> bool:
    """Whether a text contains the repr of a part that only describes it, as in ``<…>``."""
    try:
        if "<" not in text or type(part) in PLAIN or callable(part) or not _is_described(part):
            return False
        form = repr(part)
    except Exception:  # the object's own code may raise anything
        return False
    return form.startswith("<") and form.endswith(">") and _holds(text, form)


def _refuse_changing(value: object, text: str) -> None:
    """Refuse an object whose text shows a set, a dict or a memory address."""
    is_own = not (isinstance(value, _CONTAINERS) or _is_described(value))
    has_number = _LONG_NUMBER.search(text) is not None
    for part in _reachable(value, text):
        if part is value or (_is_shown(part, text) and not (is_own and _is_empty(part))):
            _refuse_unordered(part)
        if part is not value and _shows_described(part, text):
            raise _describes(text, part)
        if is_unnamed(part):
            _refuse_unnamed(part, text, is_alone=part is value)
        if has_number and any(form in text for form in _addresses(part)):
            raise _differs(text)


def _is_shown(part: Any, text: str) -> bool:
    """Whether a text contains the text of this part, which is a set, a dict or a view."""
    try:
        # issubclass first: isinstance would make a lazy proxy load its object.
        is_one = issubclass(type(part), _UNORDERED) or (_has_sign(text) and _is_unordered(part))
        if not is_one:
            return False
        if type(part).__repr__ in _WHOLE and not all(_holds(text, repr(key)) for key in _one(part)):
            return False  # without formatting the whole, which may take long
        return any(_holds(text, write(part)) for write in (repr, str))
    except Exception:  # the object's own code may raise anything
        return False


def _is_empty(part: object) -> bool:
    """Whether this is an empty set or dict, whose text may be in any text by chance."""
    return next(iter(part), part) is part  # type: ignore[call-overload]


def _refuse_unordered(part: object) -> None:
    if _is_unordered(part):
        raise LockNameError(
            f"a lock's name would hold {part!r:.80}, whose order may differ between "
            "processes: name its parts, or sorted(…) of it"
        )


def _refuse_unnamed(flag: Any, text: str, is_alone: bool) -> None:
    """Refuse a text that shows a flag of several members as Python versions differ."""
    if any(_holds(text, form) for form in shown_forms(flag, is_alone)):
        raise LockNameError(
            f"a lock's name would hold {text:.80}, but a flag of several members, {flag!r:.80}, is "
            'written differently by other Python versions: name it alone ("{flag}") or its number '
            '("{flag.value}")'
        )


def _is_unordered(part: object) -> bool:
    return isinstance(part, _UNORDERED)


def _has_sign(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)


def _one(part: Iterable[object]) -> list[object]:
    """Return the first item of a container, if it is quickly formatted."""
    return [thing for thing in islice(part, 1) if type(thing) in PLAIN]


def _holds(text: str, form: str) -> bool:
    """Whether a form is in a text, as it is or as ``ascii()`` formats it."""
    if form.isascii():
        return form in text
    return form in text or form.encode("ascii", "backslashreplace").decode() in text


def _addresses(value: object) -> tuple[str, str, str]:
    number = id(value)
    return f"{number:x}", f"{number:X}", str(number)


def _reachable(value: object, text: str) -> Iterator[object]:
    """Yield an object and the parts that its text may show, breadth first, without duplicates.

    Attributes may lead to all objects of a program. So of an object whose class has a ``__str__``
    only ``NEAR_PARTS`` are checked, unless its text shows a set or dict.

    Raises:
        LockNameError: there are more than ``MOST_PARTS``, and the text shows some of them.
    """
    shows = isinstance(value, _CONTAINERS) or _has_sign(text)
    most = MOST_PARTS if shows or _is_described(value) else NEAR_PARTS
    found = {id(value): value}
    waiting = deque([value])
    while waiting and len(found) <= most:
        yield (whole := waiting.popleft())
        for part in parts_of(whole):
            if type(part) not in PLAIN and id(part) not in found:
                found[id(part)] = part
                waiting.append(part)
    if waiting and shows:
        raise LockNameError(
            f"a lock's name would hold a {type(value).__name__} of very many parts, which might "
            'differ between processes: name a field of it ("{x.id}")'
        )


def _differs(text: str) -> LockNameError:
    return LockNameError(
        f"a lock's name would hold {text:.80}, which differs in every process and so locks "
        'nothing: name a field of it ("order:{order.id}") or give its class a __str__'
    )

"""Arguments of a call as text for a lock's name: the same text in every process, or an error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from itertools import islice
from typing import Any

import six

from redis_lock_decorators._rules.enums import settled
from redis_lock_decorators._rules.parts import PLAIN, parts_of
from redis_lock_decorators.errors import LockNameError

#: An address in memory, as a default repr shows it. Longer numbers are digests and the like.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|<[^<>]*0x[0-9a-fA-F]{6,16}(?![0-9a-fA-F])[^<>]*>")
_OF_BYTES = (bytes.__str__, bytearray.__str__)
_UNORDERED = (Set, Mapping, ValuesView)
#: What holds other objects, and shows them in its text.
_CONTAINERS = (list, tuple, deque, *_UNORDERED)
#: One of these is in the text of every set, dict or view that is not empty.
_SIGNS = ("{", "([")
#: The text of these holds that of each thing in them.
_WHOLE: tuple[object, ...] = (set.__repr__, frozenset.__repr__, dict.__repr__)
#: What may be an address in memory without saying so.
_LONG_NUMBER = re.compile(r"[0-9a-fA-F]{6}")
#: Not more of an object is looked at; one that has more, and shows them, is refused.
MOST_PARTS = 5000
#: Not more is looked at where the text of an object's own class shows no set and no dict.
NEAR_PARTS = 16


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


def stable_text(value: object, text: str) -> str:
    """``text``, made from ``value``, if every process would make the same.

    Raises:
        LockNameError: it would not, or nobody can tell.
    """
    if type(value) in PLAIN:
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
    is_own = not (isinstance(value, _CONTAINERS) or _is_described(value))
    has_number = _LONG_NUMBER.search(text) is not None
    for part in _reachable(value, text):
        if part is value or (_is_shown(part, text) and not (is_own and _is_empty(part))):
            _refuse_unordered(part)
        if has_number and any(form in text for form in _addresses(part)):
            raise _differs(text)


def _is_shown(part: Any, text: str) -> bool:
    """Whether a text holds that of a set, a dict or the like."""
    try:
        # A proxy of a set is shown as one; isinstance has others get what they stand for.
        is_one = issubclass(type(part), _UNORDERED) or (_has_sign(text) and _is_unordered(part))
        if not is_one:
            return False
        if type(part).__repr__ in _WHOLE and not all(_holds(text, repr(key)) for key in _one(part)):
            return False  # without writing the whole, which may take long
        return any(_holds(text, write(part)) for write in (repr, str))
    except Exception:  # whatever the object's own code raises
        return False


def _is_empty(part: object) -> bool:
    """Whether this is a set or dict of nothing, whose text may be in any text by chance."""
    return next(iter(part), part) is part  # type: ignore[call-overload]


def _refuse_unordered(part: object) -> None:
    if _is_unordered(part):
        raise LockNameError(
            f"a lock's name would hold {part!r:.80}, whose order may differ between "
            "processes: name its parts, or sorted(…) of it"
        )


def _is_unordered(part: object) -> bool:
    return isinstance(part, _UNORDERED)


def _has_sign(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)


def _one(part: Iterable[object]) -> list[object]:
    """The first of what is in a container, if that is quickly written."""
    return [thing for thing in islice(part, 1) if type(thing) in PLAIN]


def _holds(text: str, form: str) -> bool:
    """Whether a form is in a text, as it is or as ``ascii()`` writes it."""
    if form.isascii():
        return form in text
    return form in text or form.encode("ascii", "backslashreplace").decode() in text


def _addresses(value: object) -> tuple[str, str, str]:
    number = id(value)
    return f"{number:x}", f"{number:X}", str(number)


def _reachable(value: object, text: str) -> Iterator[object]:
    """An object and what its text may be made of, each once, the nearest first.

    Attributes lead from many an object to everything that a program has. A text of the class's
    own that shows neither a set nor a dict is believed after a look at what is near.

    Raises:
        LockNameError: they are too many, and the text shows some of them.
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
            f"a lock's name would hold a {type(value).__name__} of very many parts, of which "
            'nobody knows that they are the same in every process: name a field of it ("{x.id}")'
        )


def _differs(text: str) -> LockNameError:
    return LockNameError(
        f"a lock's name would hold {text:.80}, which differs in every process and so locks "
        'nothing: name a field of it ("order:{order.id}") or give its class a __str__'
    )

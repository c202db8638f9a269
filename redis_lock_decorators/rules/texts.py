"""Arguments of a call as text for a lock's name: the same text in every process, or an error."""

from __future__ import annotations

import dataclasses
import re

import six

from redis_lock_decorators.errors import LockNameError

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: The text of these says their value and nothing else.
_PLAIN = frozenset({str, int, float, bool, type(None)})


def as_text(value: object) -> str:
    """An argument as text; braces are escaped, so that no argument picks a cluster slot.

    Raises:
        LockNameError: the text would differ between processes (a default repr, a set).
    """
    if isinstance(value, (str, bytes)):
        return escaped(six.ensure_str(value, errors="surrogateescape"))
    return escaped(stable_text(value, str(value)))


def stable_text(value: object, text: str) -> str:
    """``text``, made from ``value``, if every process would make the same."""
    if type(value) in _PLAIN:
        return text
    _refuse_unordered(value, text)
    if _ADDRESS.search(text):
        raise LockNameError(
            f"a lock's name would hold {text:.80}, which differs in every process and so locks "
            'nothing: name a field of it ("order:{order.id}") or give its class a __str__'
        )
    return text


def escaped(text: str) -> str:
    """Braces written as %7B and %7D: in a cluster they would choose the slot."""
    if "{" in text or "}" in text:
        return text.replace("{", "%7B").replace("}", "%7D")
    return text


def _refuse_unordered(value: object, text: str, within: tuple[object, ...] = ()) -> None:
    if isinstance(value, (set, frozenset, dict)) and (not within or repr(value) in text):
        raise LockNameError(
            f"a lock's name would hold {value!r:.80}, whose order may differ between processes: "
            "name its parts, or sorted(…) of it"
        )
    if any(value is outer for outer in within):
        return
    for part in _parts(value):
        _refuse_unordered(part, text, (*within, value))


def _parts(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, part.name, None) for part in dataclasses.fields(value)]
    return []

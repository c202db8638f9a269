"""The information about the holder of a lock: how it is checked, written and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import six

from redis_lock_decorators._rules.fitting import fits
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

#: True, or a function that returns further fields.
OwnerInfoOption = bool | Callable[[], Mapping[str, object]]
#: The kind of the companion key.
KIND = b"owner"
#: The most bytes of the fields that are written.
MOST_BYTES = 2048
#: The most characters of each text that is found out about a holder.
MOST_CHARACTERS = 200
#: Written by the script: a digest of the identifier that the information belongs to, and the serial
#: number of the request.
_INTERNAL = ("of", "n")
#: One encoder, as to make one takes longer than to use it.
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
#: Determined by the request; shown last.
_TIMES = ("since", "fence")
#: Fields that a function must not return.
RESERVED = (*_INTERNAL, *_TIMES)


def checked_owner_info(option: object) -> None:
    """Refuse what is neither a boolean nor a function without arguments."""
    if isinstance(option, bool):
        return
    if not callable(option) or isinstance(option, type) or not fits(option, ()):
        raise ConfigurationError(
            f"owner_info={shown_value(option)}: give True, False or a function without arguments "
            'that returns further fields, as in owner_info=lambda: {"request": request_id()}'
        )


def merged(fields: Mapping[str, object], added: object) -> dict[str, object]:
    """Return the fields with those of a function; one that is None is removed.

    Raises:
        ValueError, TypeError: they cannot be written, or are too long.
    """
    if not isinstance(added, Mapping):
        raise TypeError(f"it returned {shown_value(added)}, not a mapping")
    if reserved := [name for name in RESERVED if name in added]:
        raise ValueError(f"it returned the field {reserved[0]!r}, which is reserved")
    found = {**fields, **added}
    for name in [name for name, value in found.items() if value is None]:
        del found[name]
    if (size := len(written(found))) > MOST_BYTES:
        raise ValueError(f"its fields need {size} bytes, but {MOST_BYTES} are allowed")
    return found


def written(fields: Mapping[str, object]) -> str:
    """Return fields as the inner part of a JSON object, in ASCII.

    Raises:
        ValueError, TypeError: they cannot be written.
    """
    return _encode(fields)[1:-1]


def with_times(text: str, since: float, fence: int | None) -> str:
    """Return what the script gets: the written fields with those that a request determines.

    Args:
        text: of ``written``.
        since: when the holder acquired the lock, in Unix seconds.
        fence: its fencing token, if it has one that the script does not know.
    """
    before = "" if fence is None else f'"fence":{fence},'
    return f'{before}"since":{since:.3f}{text and ","}{text}}}'


def parsed(value: Any) -> dict[str, Any]:
    """Return the information in a companion key; {} if it was written by another program."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    last = {name: found.pop(name) for name in _TIMES if name in found}
    return {**{name: found[name] for name in found if name not in _INTERNAL}, **last}


def is_of(value: Any, identifier: str) -> bool:
    """Whether a companion key has the information about the holder with this identifier."""
    begin = f'{{"of":"{digest(identifier)}",'
    is_text = isinstance(value, (str, bytes))
    return is_text and six.ensure_str(value, errors="replace").startswith(begin)


def digest(identifier: str) -> str:
    """Return what is stored of an identifier: enough to compare, useless to release the lock."""
    encoded = six.ensure_binary(identifier, errors="surrogateescape")
    return hashlib.sha1(encoded, usedforsecurity=False).hexdigest()


def held_for(owner: Mapping[str, Any], now: float) -> float | None:
    """Return for how many seconds a holder has the lock at the Unix time ``now``, if known."""
    since = owner.get("since")
    return max(0.0, now - since) if isinstance(since, (int, float)) else None

"""Lock names and the Redis keys made of them."""

from __future__ import annotations

import binascii
import hashlib
import itertools
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

import six

from redis_lock_decorators.errors import LockNameError

#: Longer names (bytes of UTF-8) become their beginning and a digest.
LONGEST_NAME = 512
SLOTS = 16_384


def is_name(lock_name: object) -> bool:
    """Whether this is of a type that names a lock: text, or several texts."""
    return isinstance(lock_name, (str, bytes, list, tuple, set, frozenset))


def checked_names(lock_name: object) -> tuple[str, ...]:
    """One name or several, each checked, without doubles, in one order for everybody."""
    if isinstance(lock_name, (str, bytes)):
        return (checked_name(lock_name),)
    if isinstance(lock_name, (list, tuple, set, frozenset)):
        names = tuple(sorted({checked_name(name) for name in lock_name}))
        if names:
            return names
        raise LockNameError("a lock needs at least one name: the list of names is empty")
    raise LockNameError(
        f"a lock's name is text or a list of texts, not {lock_name!r:.80} "
        f"({type(lock_name).__name__}): convert it, for example with an f-string"
    )


def checked_name(lock_name: object) -> str:
    """A name as text in Unicode's composed form (NFC), so that look-alike spellings agree."""
    if not isinstance(lock_name, (str, bytes)):
        raise LockNameError(
            f"a lock's name is text, not {lock_name!r:.80} ({type(lock_name).__name__})"
        )
    if isinstance(lock_name, bytes):
        lock_name = str(six.ensure_str(lock_name, errors="surrogateescape"))
    if not lock_name:
        raise LockNameError("a lock's name is empty: one lock would stand for everything")
    return lock_name if lock_name.isascii() else _composed(lock_name)


def _composed(name: str) -> str:
    try:
        # Surrogates that stand for bytes of valid UTF-8 are written as what they stand for.
        name = name.encode(errors="surrogateescape").decode(errors="surrogateescape")
    except UnicodeEncodeError:
        return name  # told when the key is made
    return unicodedata.normalize("NFC", name)


@lru_cache(maxsize=1024)
def keys_of(prefix: str, lock_names: tuple[str, ...]) -> tuple[bytes, ...]:
    """The Redis keys of checked names."""
    return tuple([key_of(prefix, name) for name in lock_names])


def key_of(prefix: str, lock_name: str) -> bytes:
    """The Redis key of a checked name: prefix + name, a very long name cut and digested."""
    try:
        name = six.ensure_binary(lock_name, errors="surrogateescape")
        if len(name) > LONGEST_NAME:
            digest = hashlib.blake2b(name, digest_size=16).hexdigest()
            name = six.ensure_binary(f"{lock_name[:64]}…{digest}", errors="surrogateescape")
        return six.ensure_binary(prefix) + name
    except UnicodeEncodeError:
        name_shown = ascii(lock_name)[:80]
        raise LockNameError(f"a lock's name cannot be written as UTF-8: {name_shown}") from None


def slot_of(key: bytes) -> int:
    """The cluster slot of a key, from the Redis cluster specification (CRC16, hash tags)."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


def companion(key: bytes, kind: bytes) -> bytes:
    """The key of further facts about a lock, in the slot of its key whatever braces it has.

    With a prefix that begins with a brace, or none, a lock may be given a name that is such a key;
    it is then told to choose another.
    """
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if 0 <= start < end - 1:
        return b"{%b}:%b:%b" % (key[start + 1 : end], key, kind)
    if b"}" not in key:
        return b"{%b}:%b" % (key, kind)
    return b"{%b}:%b:%b" % (_tag(slot_of(key)), key, kind)


@lru_cache(maxsize=1024)
def with_queue(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Lock keys, then the keys of their queues, then those of what is noted of their waiters."""
    queues = tuple([companion(key, b"queue") for key in keys])
    return keys + queues + tuple([companion(key, b"waiters") for key in keys])


@cache
def _tag(slot: int) -> bytes:
    """A short hash tag of a slot."""
    tags = (b"%x" % number for number in itertools.count())
    return next(tag for tag in tags if slot_of(tag) == slot)


def by_slot(keys: Iterable[bytes]) -> list[tuple[bytes, ...]]:
    """Keys grouped by slot, slots in rising order: the one order in which everybody takes them."""
    groups: dict[int, list[bytes]] = {}
    for key in keys:
        groups.setdefault(slot_of(key), []).append(key)
    return [tuple(groups[slot]) for slot in sorted(groups)]

"""Lock names and their Redis keys."""

from __future__ import annotations

import binascii
import hashlib
import itertools
import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache

import six

from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import LockNameError

#: What all keys begin with, unless another prefix is given.
DEFAULT_PREFIX = "sys:lock:"
#: In bytes of UTF-8. The key of a longer name has its beginning and a digest.
LONGEST_NAME = 512
SLOTS = 16_384
#: The separator before the kind of a companion key, which has further data of a lock.
MARK = b"~:"
#: The kinds of companion keys.
KINDS = (b"queue", b"waiters", b"released", b"fence", b"owner")
COMPANION = re.compile(MARK + rb"[a-z]+\Z")
_LETTERS = (string.ascii_letters + string.digits).encode()
_PAIRS = tuple([bytes(pair) for pair in itertools.product(_LETTERS, repeat=2)])


def is_name(lock_name: object) -> bool:
    """Whether this has the type of a lock name: text or a collection of texts."""
    return isinstance(lock_name, (str, bytes, list, tuple, set, frozenset))


def checked_names(lock_name: object) -> tuple[str, ...]:
    """Return one or several checked names, without duplicates, sorted alike in every process."""
    if type(lock_name) is str and lock_name and lock_name.isascii():
        return (lock_name,)  # the common case, fast
    if isinstance(lock_name, (str, bytes)):
        return (checked_name(lock_name),)
    if isinstance(lock_name, (list, tuple, set, frozenset)):
        names = tuple(sorted({checked_name(name) for name in lock_name}))
        if names:
            return names
        raise LockNameError("the list of lock names is empty: give at least one name")
    raise LockNameError(
        f"a lock's name is text or a list of texts, not {shown_value(lock_name)} "
        f"({type(lock_name).__name__}): convert it, for example with an f-string"
    )


def checked_name(lock_name: object) -> str:
    """Return a name as text, normalized to Unicode NFC, so that equivalent spellings agree."""
    if not isinstance(lock_name, (str, bytes)):
        raise LockNameError(
            f"a lock's name is text, not {shown_value(lock_name)} ({type(lock_name).__name__}): "
            "convert it"
        )
    if isinstance(lock_name, bytes):
        lock_name = six.ensure_str(lock_name, errors="surrogateescape")
    lock_name = str.__str__(lock_name)  # the plain text of subclasses such as markup or str enums
    if not lock_name:
        raise LockNameError("a lock's name is empty, so all calls would share a lock: give a name")
    return lock_name if lock_name.isascii() else _composed(lock_name)


def _composed(name: str) -> str:
    try:
        # Surrogate escapes that form valid UTF-8 are replaced by the characters they encode.
        name = name.encode(errors="surrogateescape").decode(errors="surrogateescape")
    except UnicodeEncodeError:
        return name  # ``key_of`` raises
    return unicodedata.normalize("NFC", name)


@lru_cache(maxsize=1024)
def keys_of(prefix: str, lock_names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the Redis keys of checked names."""
    return tuple([key_of(prefix, name) for name in lock_names])


def key_of(prefix: str, lock_name: str) -> bytes:
    """Return the Redis key of a checked name: prefix + name; a very long name is hashed.

    Without a prefix it is not: the key is the name, as that of other libraries' locks.
    """
    try:
        name = six.ensure_binary(lock_name, errors="surrogateescape")
        if len(name) > LONGEST_NAME and prefix:
            digest = hashlib.blake2b(name, digest_size=16).hexdigest()
            name = six.ensure_binary(f"{lock_name[:64]}…{digest}", errors="surrogateescape")
        return checked_key(six.ensure_binary(prefix) + name)
    except UnicodeEncodeError:
        name_shown = ascii(lock_name)[:80]
        raise LockNameError(f"a lock's name is not valid UTF-8: {name_shown}") from None


def refuse_other_spelling(lock_name: object) -> None:
    """Refuse names without a prefix whose key would be another text in Unicode NFC.

    Raises:
        LockNameError: other libraries use the name as it is for the key, and would not be excluded.
    """
    names = [lock_name] if isinstance(lock_name, (str, bytes)) else lock_name
    for name in names if isinstance(names, (list, tuple, set, frozenset)) else ():
        plain = six.ensure_str(name, errors="surrogateescape")
        if checked_name(name) != str.__str__(plain):
            raise LockNameError(
                f"the lock's name {name!a:.80} is not in Unicode NFC: with prefix='' its key would "
                "differ from that of other libraries' locks; give a prefix, or "
                "unicodedata.normalize('NFC', name) in all programs"
            )


def is_unchanged(lock_name: str) -> bool:
    """Whether a name is in its key as it is: in Unicode NFC, and not hashed for its length."""
    plain = lock_name.encode(errors="surrogateescape")
    return checked_name(lock_name) == lock_name and len(plain) <= LONGEST_NAME


def checked_key(key: bytes) -> bytes:
    """Return the key of a lock; the form of companion keys is refused."""
    if is_companion(key):
        shown = ascii(key.decode(errors="surrogateescape"))
        raise LockNameError(
            f"a lock's key must not end like {shown[-40:]}: keys that end in ~: and a word are "
            "reserved for the data of locks; choose another name"
        )
    return key


def slot_of(key: bytes) -> int:
    """Return the cluster slot of a key, by the Redis cluster specification (CRC16, hash tags)."""
    return binascii.crc_hqx(_hashed(key), 0) % SLOTS


def companion_endings(keys: Iterable[bytes]) -> list[str]:
    """The endings of those of these keys that are companion keys, such as ``~:queue``."""
    return [found[0].decode() for key in keys if (found := COMPANION.search(key))]


def companion(key: bytes, kind: bytes) -> bytes:
    """Return the companion key of a lock: it begins with the lock's key and is in its slot.

    So an ACL pattern that allows the lock's key or prefix allows it too. It depends only on the
    key, so that clients with different prefixes agree on it. ``kind`` is lower-case letters. No
    lock has a key of this form, see ``is_companion``.
    """
    part = _hashed(key)
    if part is not key or not (b"{" in key or b"}" in key):
        return b"%b{%b}%b%b" % (key, part, MARK, kind)
    # The key has a brace, but no hash tag; a tag appended to it would not count.
    return _in_slot(slot_of(key), key + b"~", MARK + kind)


def is_companion(key: bytes) -> bool:
    """Whether a key has the form of a companion key."""
    return MARK in key and COMPANION.search(key) is not None


def with_companions(key: bytes) -> tuple[bytes, ...]:
    """Return the key of a lock and all its companion keys."""
    return (key, *[companion(key, kind) for kind in KINDS])


@lru_cache(maxsize=1024)
def with_queue(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the lock keys, then the keys of their queues, then those of their waiters' data."""
    queues = tuple([companion(key, b"queue") for key in keys])
    return keys + queues + tuple([companion(key, b"waiters") for key in keys])


@lru_cache(maxsize=1024)
def with_notes(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the keys of ``with_queue``, then the keys with the notes of releases."""
    return with_queue(keys) + tuple([companion(key, b"released") for key in keys])


def _hashed(key: bytes) -> bytes:
    """Return the part of a key that determines its slot: its hash tag, or the whole key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            return key[start + 1 : end]
    return key


def _in_slot(slot: int, begin: bytes, end: bytes) -> bytes:
    """Return a key in a slot, by inserting four letters between ``begin`` and ``end``.

    CRC16 is linear: the change that two letters cause does not depend on the other bytes.
    """
    seconds = _changes(len(end))
    for first in _PAIRS:
        rest = binascii.crc_hqx(b"%b%b\0\0%b" % (begin, first, end), 0) % SLOTS
        second = seconds.get(rest ^ slot)
        if second is not None:
            return b"%b%b%b%b" % (begin, first, second, end)
    raise AssertionError("no letters lead to this slot")  # tested for every slot


@cache
def _changes(following: int) -> dict[int, bytes]:
    """Map changes of a slot to the two letters that cause them, before ``following`` bytes."""
    after = bytes(following)
    return {binascii.crc_hqx(pair + after, 0) % SLOTS: pair for pair in _PAIRS}


def by_slot(keys: Iterable[bytes]) -> list[tuple[bytes, ...]]:
    """Group keys by slot, in ascending order: the order in which every process acquires them."""
    groups: dict[int, list[bytes]] = {}
    for key in keys:
        groups.setdefault(slot_of(key), []).append(key)
    return [tuple(groups[slot]) for slot in sorted(groups)]

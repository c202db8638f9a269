"""Lock names and the Redis keys made of them."""

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

from redis_lock_decorators.errors import LockNameError

#: Longer names (bytes of UTF-8) become their beginning and a digest.
LONGEST_NAME = 512
SLOTS = 16_384
#: What stands before the kind of a companion, the key of further facts about a lock.
MARK = b"~:"
COMPANION = re.compile(MARK + rb"[a-z]+\Z")
_LETTERS = (string.ascii_letters + string.digits).encode()
_PAIRS = tuple([bytes(pair) for pair in itertools.product(_LETTERS, repeat=2)])


def is_name(lock_name: object) -> bool:
    """Whether this is of a type that names a lock: text, or several texts."""
    return isinstance(lock_name, (str, bytes, list, tuple, set, frozenset))


def checked_names(lock_name: object) -> tuple[str, ...]:
    """One name or several, each checked, without doubles, in one order for everybody."""
    if type(lock_name) is str and lock_name and lock_name.isascii():
        return (lock_name,)  # as most are
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
        lock_name = six.ensure_str(lock_name, errors="surrogateescape")
    lock_name = str.__str__(lock_name)  # markup, members of an enum and the like are texts, too
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
        return checked_key(six.ensure_binary(prefix) + name)
    except UnicodeEncodeError:
        name_shown = ascii(lock_name)[:80]
        raise LockNameError(f"a lock's name cannot be written as UTF-8: {name_shown}") from None


def checked_key(key: bytes) -> bytes:
    """A key that may be a lock's: none of those that are kept for further facts about locks."""
    if is_companion(key):
        shown = ascii(key.decode(errors="surrogateescape"))
        raise LockNameError(
            f"a lock's key does not end like {shown[-40:]}: keys that end in ~: and a word are "
            "kept for what is noted of locks"
        )
    return key


def slot_of(key: bytes) -> int:
    """The cluster slot of a key, from the Redis cluster specification (CRC16, hash tags)."""
    return binascii.crc_hqx(_hashed(key), 0) % SLOTS


def companion(key: bytes, kind: bytes) -> bytes:
    """The key of further facts about a lock: it begins with the lock's key and is in its slot.

    So a pattern that allows a lock's key, or its prefix, allows this too. It depends on nothing
    else, so that all agree on it who come to the key by different prefixes. ``kind`` is a word of
    lower-case letters. No lock is ever given a key of this form, see ``is_companion``.
    """
    part = _hashed(key)
    if part is not key or not (b"{" in key or b"}" in key):
        return b"%b{%b}%b%b" % (key, part, MARK, kind)
    # Its braces make no hash tag, and whatever follows them would not either.
    return _in_slot(slot_of(key), key + b"~", MARK + kind)


def is_companion(key: bytes) -> bool:
    """Whether a key has the form of those that ``companion`` makes."""
    return MARK in key and COMPANION.search(key) is not None


@lru_cache(maxsize=1024)
def with_queue(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Lock keys, then the keys of their queues, then those of what is noted of their waiters."""
    queues = tuple([companion(key, b"queue") for key in keys])
    return keys + queues + tuple([companion(key, b"waiters") for key in keys])


@lru_cache(maxsize=1024)
def with_notes(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The keys of ``with_queue``, then those of the notes of who released the locks."""
    return with_queue(keys) + tuple([companion(key, b"released") for key in keys])


def _hashed(key: bytes) -> bytes:
    """The part of a key that chooses its slot: its hash tag, or the key itself."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            return key[start + 1 : end]
    return key


def _in_slot(slot: int, begin: bytes, end: bytes) -> bytes:
    """A key without hash tag that begins and ends so, with four letters between for its slot.

    CRC16 is linear: what two letters change of it does not depend on the rest.
    """
    seconds = _changes(len(end))
    for first in _PAIRS:
        rest = binascii.crc_hqx(b"%b%b\0\0%b" % (begin, first, end), 0) % SLOTS
        second = seconds.get(rest ^ slot)
        if second is not None:
            return b"%b%b%b%b" % (begin, first, second, end)
    raise AssertionError("no letters lead to this slot")  # they do to each, as is tested


@cache
def _changes(following: int) -> dict[int, bytes]:
    """Two letters by what they change of a slot, in place of zeros, before so many bytes."""
    after = bytes(following)
    return {binascii.crc_hqx(pair + after, 0) % SLOTS: pair for pair in _PAIRS}


def by_slot(keys: Iterable[bytes]) -> list[tuple[bytes, ...]]:
    """Keys grouped by slot, slots in rising order: the one order in which everybody takes them."""
    groups: dict[int, list[bytes]] = {}
    for key in keys:
        groups.setdefault(slot_of(key), []).append(key)
    return [tuple(groups[slot]) for slot in sorted(groups)]

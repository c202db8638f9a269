"""Commands in the Redis protocol."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from redis_lock_decorators import _lua

#: The header of a word, by the length of the word in bytes.
HEADS = tuple([b"$%d" % length for length in range(256)])
#: The first words of a request (script, number of keys, keys) are cached for so many keys at most:
#: those of one lock, not those of many leases that are renewed together.
FEW_KEYS = 4
#: The size of that cache: two entries per lock.
MAX_CACHED = 1024


def check(command: tuple[Any, ...]) -> None:
    """Check that a command can be encoded, so that it cannot fail the others of its batch.

    Raises:
        UnicodeEncodeError: a word contains a lone surrogate that is no byte of a key.
    """
    # The keys of a script are bytes, and the words before them are our own.
    words = command[3 + command[2] :] if command[0] == "EVALSHA" else command
    for word in words:
        if isinstance(word, str) and not word.isascii():
            _bytes(word)


def encoded(command: tuple[Any, ...]) -> tuple[Any, ...]:
    """A command with its texts after the verb in UTF-8, whatever the client's ``encoding``.

    Numbers remain, because cluster clients compute with them.
    """
    verb, *words = command
    return (verb, *[_bytes(word) if isinstance(word, str) else word for word in words])


def packed(command: tuple[Any, ...]) -> bytes:
    """The bytes of a command, in UTF-8 whatever the client's ``encoding``.

    redis-py's connections can do this too, in four times the time.
    """
    count = len(command)
    if command[0] != "EVALSHA" or command[2] > FEW_KEYS:
        return _joined([b"*%d" % count], command)
    args = 3 + command[2]
    return _joined([_head(count, command[:args])], command[args:])


def packed_together(commands: Iterable[tuple[Any, ...]]) -> bytes:
    """The bytes of commands that one connection sends in this order, each script's text once.

    A server knows the digest of a text that it has run. The texts of many requests could fill the
    buffers of a connection to a server that stands still, so that the last would not reach it. A
    request without its text may get NOSCRIPT: from a proxy, or if that with the text was refused.
    """
    digests: dict[bytes, bytes] = {}
    found = []
    for command in commands:
        if command[0] == "EVAL":
            form, text, *words = command
            if text in digests:
                form, text = "EVALSHA", digests[text]
            elif isinstance(text, bytes):
                digests[text] = _lua.digest(text)
            command = form, text, *words
        found.append(packed(command))
    return b"".join(found)


@lru_cache(maxsize=MAX_CACHED)
def _head(count: int, words: tuple[Any, ...]) -> bytes:
    """The lines of a command of so many words, up to the end of the given ones."""
    return _joined([b"*%d" % count], words)[:-2]


def _joined(lines: list[bytes], words: Iterable[Any]) -> bytes:
    """These lines and those of the words."""
    for word in words:
        # As _bytes does; a call for each word would cost each block a microsecond.
        data = word if type(word) is bytes else str(word).encode("utf-8", "surrogateescape")
        length = len(data)
        lines.append(HEADS[length] if length < 256 else b"$%d" % length)
        lines.append(data)
    lines.append(b"")
    return b"\r\n".join(lines)


def _bytes(word: Any) -> bytes:
    """A word in UTF-8; other bytes, which were found in a key, are surrogates in a text."""
    return str(word).encode("utf-8", "surrogateescape")


def words_of(data: bytes) -> list[bytes]:
    """The words of an encoded command."""
    found, rest = [], data.partition(b"\r\n")[2]
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        length = int(head[1:])
        found.append(rest[:length])
        rest = rest[length + 2 :]
    return found

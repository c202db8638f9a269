"""Commands as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

#: What stands before a word, by its length; longer words have theirs made.
HEADS = tuple([b"$%d" % length for length in range(256)])
#: The beginning of a request is remembered if it names so many keys at most: one lock's, not those
#: of many leases that are renewed together.
FEW_KEYS = 4
#: So many of them: two for each lock.
MOST_HEADS = 1024


def check(command: tuple[Any, ...]) -> None:
    """Make sure that a command can be written, so that no other fails that travels with it.

    Raises:
        UnicodeEncodeError: a word is no valid text.
    """
    # The keys of a script are bytes, and what stands before them is ours.
    words = command[3 + command[2] :] if command[0] == "EVALSHA" else command
    for word in words:
        kind = type(word)
        if not (kind is bytes or kind is int or (kind is str and word.isascii())):
            str(word).encode()


def encoded(command: tuple[Any, ...]) -> tuple[Any, ...]:
    """A command whose texts after the verb are in UTF-8, whatever the client's ``encoding``.

    Clients of clusters do sums with numbers, so these stay.
    """
    verb, *words = command
    return (verb, *[word.encode() if isinstance(word, str) else word for word in words])


def packed(command: tuple[Any, ...]) -> bytes:
    """A command in the Redis protocol, in UTF-8 whatever the client's ``encoding``.

    Connections can do it themselves, in four times the time.
    """
    if command[0] != "EVALSHA" or command[2] > FEW_KEYS:
        return b"*%d\r\n%b" % (len(command), _written(command))
    same = 3 + command[2]  # as in other requests for that lock: script, number of keys, keys
    head = _written_before(command[:same])
    return b"*%d\r\n%b%b" % (len(command), head, _written(command[same:]))


def _written(words: Iterable[Any]) -> bytes:
    lines = []
    for word in words:
        data = word if type(word) is bytes else str(word).encode()
        length = len(data)
        lines.append(HEADS[length] if length < 256 else b"$%d" % length)
        lines.append(data)
    lines.append(b"")
    return b"\r\n".join(lines)


_written_before = lru_cache(maxsize=MOST_HEADS)(_written)


def words_of(data: bytes) -> list[bytes]:
    """The words of a command in the Redis protocol."""
    found, rest = [], data.partition(b"\r\n")[2]
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        length = int(head[1:])
        found.append(rest[:length])
        rest = rest[length + 2 :]
    return found

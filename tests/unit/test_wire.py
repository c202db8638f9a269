"""Encoded commands: cached words of one request are in no other."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from redis_lock_decorators import _lua
from redis_lock_decorators._io.transport.encoding import (
    FEW_KEYS,
    packed,
    packed_together,
    words_of,
)


def plainly(command: tuple[Any, ...]) -> bytes:
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(w), w) for w in words])


@pytest.mark.parametrize(
    "command",
    [
        ("PING",),
        ("SET", b"key", "identifié", "NX", "PX", 10_000),
        ("EVAL", b"return 1" * 100, 1, b"key", "a", 1),
        ("EVALSHA", b"sha", 0, "a"),
        ("EVALSHA", b"sha", 0),
        ("EVALSHA", b"sha", FEW_KEYS, *[b"key"] * FEW_KEYS, "a" * 300, -1, 1.5, ""),
        ("EVALSHA", b"sha", 500, *[b"key:%d" % number for number in range(500)], "a", 7),
    ],
)
def test_command_is_packed_word_by_word(command: tuple[Any, ...]) -> None:
    assert packed(command) == packed(command) == plainly(command)
    assert words_of(packed(command)) == words_of(plainly(command))


def test_requests_that_differ_anywhere_are_encoded_differently() -> None:
    commands = [
        ("EVALSHA", sha, len(keys), *keys, identifier, serial)
        for sha, keys, identifier, serial in product(
            (b"1", b"2"), ((b"k",), (b"k", b"q"), (b"q", b"k")), ("a", "b"), (1, 2)
        )
    ]
    for command in commands * 2:
        assert packed(command) == plainly(command)


def test_commands_of_one_connection_have_each_text_once() -> None:
    script = _lua.script("release")
    first = [("EVAL", script.text, 1, b"key:%d" % number, "a", number) for number in range(3)]
    other = ("EVAL", b"return 1", 0)
    known = ("EVALSHA", b"sha", 0)

    data = packed_together([known, first[0], other, first[1], known, first[2]])

    again = [("EVALSHA", script.sha, *command[2:]) for command in first]
    assert data == b"".join(map(plainly, [known, first[0], other, again[1], known, again[2]]))

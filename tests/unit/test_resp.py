"""The RESP2 parser returns complete replies wherever the bytes are cut, and refuses others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._io.transport.resp import (
    INCOMPLETE,
    MAX_DEPTH,
    MAX_LINE,
    ProtocolError,
    ReplyParser,
)


class Failed(Exception):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failed) and self.args == other.args

    __hash__ = None  # type: ignore[assignment]


def parsed(*chunks: bytes) -> list[object]:
    """The replies parsed from chunks of bytes."""
    replies, found = ReplyParser(Failed), []
    for chunk in chunks:
        replies.feed(chunk)
        while (reply := replies.next_reply()) is not INCOMPLETE:
            found.append(reply)
    return found


ALL = (
    b"+OK\r\n:-7\r\n$3\r\nabc\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
    b"*3\r\n:1\r\n*1\r\n$2\r\n\r\n\r\n-ERR x\r\n"
)
EXPECTED = [b"OK", -7, b"abc", b"", None, None, [], [1, [b"\r\n"], Failed("ERR x")]]


def test_replies_of_all_kinds() -> None:
    assert parsed(ALL) == EXPECTED


@given(st.lists(st.integers(0, len(ALL)), max_size=8))
def test_replies_may_be_cut_anywhere(places: list[int]) -> None:
    ends = sorted([0, *places, len(ALL)])

    assert parsed(*[ALL[one:two] for one, two in itertools.pairwise(ends)]) == EXPECTED


def test_replies_may_arrive_byte_by_byte() -> None:
    assert parsed(*[ALL[at : at + 1] for at in range(len(ALL))]) == EXPECTED


@given(
    st.recursive(st.binary() | st.integers(), lambda some: st.lists(some, max_size=4), max_leaves=9)
)
def test_every_reply_is_parsed_to_its_value(value: object) -> None:
    assert parsed(written(value)) == [value]


def written(value: object) -> bytes:
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    assert isinstance(value, list)
    return b"*%d\r\n" % len(value) + b"".join(map(written, value))


def test_partial_reply_remains_unread() -> None:
    replies = ReplyParser(Failed)
    replies.feed(b"+OK\r\n$3\r\nab")

    assert replies.next_reply() == b"OK"
    assert replies.next_reply() is INCOMPLETE
    assert replies.has_rest
    replies.feed(b"c\r\n")
    assert replies.next_reply() == b"abc"
    assert not replies.has_rest


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b":one\r\n",
        b"$three\r\nabc\r\n",
        b"*\r\n",
        b"*1\r\n" * (MAX_DEPTH + 1),
        b"*1000000000\r\n",
        b"+" + b"x" * MAX_LINE,
        b"\x15\x03\x03\x00\x02\x02\r\n",
    ],
    ids=repr,
)
def test_invalid_reply_is_refused(garbage: bytes) -> None:
    with pytest.raises(ProtocolError):
        parsed(garbage)


def test_error_reply_with_invalid_utf8_is_decoded() -> None:
    assert parsed(b"-ERR \xff\r\n") == [Failed("ERR \ufffd")]


@pytest.mark.parametrize("text", [b"", b"abc", b"\r\n", b"x" * 1000])
def test_bytes_of_one_string_are_its_reply(text: bytes) -> None:
    replies = ReplyParser(Failed)

    assert replies.only_string(b"$%d\r\n%b\r\n" % (len(text), text)) == text
    assert not replies.has_rest


@given(st.sampled_from([ALL, b"$3\r\nabc\r\n", b"$-1\r\n", b"$-1\r\nx", b"+OK\r\n"]), st.data())
def test_bytes_of_other_replies_are_fed(data: bytes, cuts: st.DataObject) -> None:
    if data == b"$3\r\nabc\r\n":
        data = data[: cuts.draw(st.integers(1, len(data) - 1))]
    replies, fed = ReplyParser(Failed), ReplyParser(Failed)
    fed.feed(data)

    assert replies.only_string(data) is INCOMPLETE
    assert replies.has_rest
    assert replies.next_reply() == fed.next_reply()


@pytest.mark.parametrize("cut", range(1, 40))
@pytest.mark.parametrize("count", [1, 2, 5])
def test_replies_are_taken_wherever_their_bytes_are_cut(cut: int, count: int) -> None:
    data = b"$1\r\na\r\n$10\r\n0123456789\r\n$0\r\n\r\n:7\r\n$-1\r\n"
    parser, found = ReplyParser(Failed), list[Any]()

    for part in (data[:cut], data[cut:]):
        parser.feed(part)
        parser.take(found, count)

    assert found == [b"a", b"0123456789", b"", 7, None][:count]
    parser.take(found, 6)
    assert found == [b"a", b"0123456789", b"", 7, None]
    assert not parser.has_rest


def test_garbled_bytes_after_taken_strings_are_refused() -> None:
    parser, found = ReplyParser(Failed), list[Any]()
    parser.feed(b"$1\r\na\r\n$x\r\na\r\n")

    with pytest.raises(ProtocolError):
        parser.take(found, 2)

    assert found == [b"a"]

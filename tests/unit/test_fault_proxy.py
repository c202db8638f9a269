"""The fault proxy cuts streams into frames where Redis does."""

import pytest
from support.proxy import frame_end, take_frames, words

COMPLETE = [
    b"+OK\r\n",
    b"-ERR wrong\r\n",
    b":12\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\n\r\n\r\n\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*2\r\n*1\r\n:1\r\n*2\r\n+a\r\n$1\r\nb\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(12345678901234567890\r\n",
    b"!5\r\nERR x\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
    b"~2\r\n:1\r\n:2\r\n",
    b">2\r\n+message\r\n+x\r\n",
    b"|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n",
    b"PING\r\n",
]


@pytest.mark.parametrize("frame", COMPLETE)
def test_frame_ends_with_its_last_byte(frame: bytes) -> None:
    assert frame_end(frame + b"+next\r\n") == len(frame)


@pytest.mark.parametrize("frame", COMPLETE)
def test_frame_is_incomplete_without_its_last_byte(frame: bytes) -> None:
    assert [frame_end(frame[:length]) for length in range(len(frame))] == [None] * len(frame)


def test_several_frames_in_one_packet_are_counted() -> None:
    packet = bytearray(b"".join(COMPLETE) + b"$5\r\nhal")

    frames = list(take_frames(packet))

    assert frames == COMPLETE
    assert packet == b"$5\r\nhal"


def test_command_words_may_hold_line_ends() -> None:
    assert words(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nx\r\ny\r\n") == [b"SET", b"a", b"x\r\ny"]


def test_inline_command_is_split_at_blanks() -> None:
    assert words(b"CLUSTER INFO\r\n") == [b"CLUSTER", b"INFO"]

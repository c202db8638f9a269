"""Replies in RESP2: bytes are fed as they come, and only whole replies are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What is given while the next reply is not whole.
NOTHING = object()
#: Of a longer line than this, in bytes, or a deeper reply, nobody asked for the rest.
LONGEST_LINE = 65536
DEEPEST = 8
#: No reply to us has more items than this; each look at one that is half there begins anew.
MOST_ITEMS = 10_000

_TEXT, _ERROR, _NUMBER, _STRING, _ARRAY = b"+-:$*"


class Garbled(Exception):
    """The bytes are no reply."""


class ReplyParser:
    """Takes replies from bytes, however those are cut.

    Texts are bytes, and error replies are what ``failed`` makes of their sentences.
    """

    __slots__ = ("_at", "_data", "_failed")

    def __init__(self, failed: Callable[[str], Exception]) -> None:
        self._failed = failed
        self._data: bytes | bytearray = b""
        self._at = 0

    def __bool__(self) -> bool:
        """Whether there are bytes that are not taken."""
        return len(self._data) > self._at

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
            return
        # Only the reply that is being awaited comes in parts: others are taken at once.
        rest = self._data
        if type(rest) is bytes or self._at:
            rest = bytearray(rest[self._at :])
        rest += data
        self._data, self._at = rest, 0

    def take(self) -> Any:
        """The next reply, or ``NOTHING`` until it is whole.

        Raises:
            Garbled: it is no reply, and what follows it is none.
        """
        if self._at == len(self._data):
            return NOTHING
        try:
            reply, self._at = self._reply(self._at, DEEPEST)
        except _Half:
            return NOTHING
        except ValueError as error:
            raise Garbled(str(error)) from None
        return reply

    def _reply(self, start: int, depth: int) -> tuple[Any, int]:
        data = self._data
        stop = data.find(b"\r\n", start, start + LONGEST_LINE)
        if stop < 0:
            raise _half(len(data) - start < LONGEST_LINE)
        kind, line, end = data[start], data[start + 1 : stop], stop + 2
        if kind == _STRING:  # here, for there is no more frequent call
            stop = end + int(line)
            if stop < end:
                return None, end
            if len(data) < stop + 2:
                raise _half(True)
            return bytes(data[end:stop]), stop + 2
        if kind == _NUMBER:
            return int(line), end
        return self._other(kind, line, start, end, depth)

    def _other(
        self, kind: int, line: bytes | bytearray, start: int, end: int, depth: int
    ) -> tuple[Any, int]:
        if kind == _TEXT:
            return bytes(line), end
        if kind == _ERROR:
            return self._failed(line.decode(errors="replace")), end
        if kind == _ARRAY and depth:
            return self._array(end, int(line), depth - 1)
        raise ValueError(f"unexpected bytes: {bytes(self._data[start : start + 20])!r}")

    def _array(self, start: int, count: int, depth: int) -> tuple[list[Any] | None, int]:
        if count < 0:
            return None, start
        if count > MOST_ITEMS:
            raise ValueError(f"{count} items")
        items = []
        for _ in range(count):
            item, start = self._reply(start, depth)
            items.append(item)
        return items, start


class _Half(Exception):
    """The reply is not whole yet."""


def _half(may_come: bool) -> Exception:
    return _Half() if may_come else ValueError("a line that does not end")

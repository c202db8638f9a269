"""A parser of RESP2 replies, which is fed bytes as they arrive and returns complete replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis_lock_decorators._io.hook_errors import is_of_handler

#: What ``next_reply`` returns until the next reply is complete.
INCOMPLETE = object()
#: A longer line, in bytes, or a more deeply nested array is no reply to any of our requests.
MAX_LINE = 65536
MAX_DEPTH = 8
#: No reply to our requests has more items. An incomplete array is parsed again from its start.
MAX_ITEMS = 10_000
#: The bytes that are searched for the size of a string that is a whole reply.
LONGEST_SIZE = 8

_TEXT, _ERROR, _NUMBER, _STRING, _ARRAY = b"+-:$*"


class ProtocolError(Exception):
    """The bytes are no RESP2 reply."""


class ReplyParser:
    """Parses replies from bytes, wherever these are cut.

    Texts are returned as bytes, and error replies as what ``failed`` makes of their texts.

    Attributes:
        has_rest: there are bytes that no reply has used.
        fed: the bytes that it was fed last.
    """

    __slots__ = ("_at", "_data", "_failed", "fed", "has_rest")

    def __init__(self, failed: Callable[[str], Exception]) -> None:
        self._failed = failed
        self._data: bytes | bytearray = b""
        self._at = 0
        self.has_rest = False
        self.fed = b""

    def feed(self, data: bytes) -> None:
        if self.has_rest:
            # Only the last reply can be incomplete: those before it have been returned.
            rest = self._data
            if type(rest) is bytes or self._at:
                rest = bytearray(rest[self._at :])
            rest += data
            self._data, self._at, self.fed = rest, 0, data
        else:
            self._data, self._at, self.fed, self.has_rest = data, 0, data, bool(data)

    def only_string(self, data: bytes) -> Any:
        """The reply if these bytes are one string; else feed them and return ``INCOMPLETE``.

        Most replies are one string. ``feed`` and ``next_reply`` would take two calls more. There
        must be no rest.
        """
        stop = data.find(b"\r\n", 1, LONGEST_SIZE)
        if stop > 1 and data[0] == _STRING:
            size = data[1:stop]
            if size.isdigit() and stop + 4 + int(size) == len(data):
                return data[stop + 2 : -2]
        self.feed(data)
        return INCOMPLETE

    def take(self, replies: list[Any], count: int) -> None:
        """Append the next complete replies, until there are ``count``.

        Most are strings. ``next_reply`` would take two calls for each.

        Raises:
            ProtocolError: the bytes are no reply; nothing after them can be parsed.
        """
        data, at, total = self._data, self._at, len(self._data)
        while len(replies) < count and at < total:
            stop = data.find(b"\r\n", at, at + LONGEST_SIZE) if data[at] == _STRING else -1
            size = data[at + 1 : stop]
            if stop > 0 and size.isdigit():
                if (end := stop + 4 + int(size)) > total:
                    break
                replies.append(bytes(data[stop + 2 : end - 2]))
                at = end
                continue
            self._at = at
            if (reply := self.next_reply()) is INCOMPLETE:
                return
            replies.append(reply)
            at = self._at
        self._at, self.has_rest = at, at < total

    def next_reply(self) -> Any:
        """The next reply, or ``INCOMPLETE``.

        Raises:
            ProtocolError: the bytes are no reply; nothing after them can be parsed.
        """
        if not self.has_rest:
            return INCOMPLETE
        try:
            (reply,), self._at = self._replies(self._at, 1, MAX_DEPTH)
        except _Incomplete:
            return INCOMPLETE
        except ValueError as error:
            if is_of_handler(error):
                raise
            raise ProtocolError(str(error)) from None
        self.has_rest = self._at < len(self._data)
        return reply

    def _replies(self, start: int, count: int, depth: int) -> tuple[list[Any], int]:
        """So many replies and where they end, in one loop: a call for each would take longer."""
        data, found = self._data, []
        item: Any
        for _ in range(count):
            stop = data.find(b"\r\n", start, start + MAX_LINE)
            if stop < 0:
                raise _incomplete_line(len(data) - start)
            kind, line, end = data[start], data[start + 1 : stop], stop + 2
            if kind == _STRING:
                size = int(line)
                start = end + size + 2 if size >= 0 else end
                if len(data) < start:
                    raise _Incomplete
                item = bytes(data[end : start - 2]) if size >= 0 else None
            elif kind == _NUMBER:
                item, start = int(line), end
            else:
                item, start = self._other(kind, line, start, end, depth)
            found.append(item)
        return found, start

    def _other(
        self, kind: int, line: bytes | bytearray, start: int, end: int, depth: int
    ) -> tuple[Any, int]:
        if kind == _TEXT:
            return bytes(line), end
        if kind == _ERROR:
            return self._failed(line.decode(errors="replace")), end
        if kind != _ARRAY or not depth:
            raise ValueError(f"unexpected bytes: {bytes(self._data[start : start + 20])!r}")
        count = int(line)
        if count > MAX_ITEMS:
            raise ValueError(f"{count} items")
        return (None, end) if count < 0 else self._replies(end, count, depth - 1)


class _Incomplete(Exception):
    """The end of the reply has not arrived yet."""


def _incomplete_line(length: int) -> Exception:
    return _Incomplete() if length < MAX_LINE else ValueError("a line that does not end")

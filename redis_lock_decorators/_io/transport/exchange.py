"""The exchange that is under way on a private connection of an asyncio client."""

from __future__ import annotations

import math
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.transport.resp import ProtocolError, ReplyParser
from redis_lock_decorators._io.transport.task_connection import abort, fail_waiting

#: The most bytes in one read: the replies to a full batch.
READ_SIZE = 65536


class Exchange:
    """An exchange that is under way on a connection.

    Args:
        end: the latest time for its last reply, in monotonic seconds.
        patience: seconds to wait for each reply.

    Attributes:
        last_reply: when the last reply arrived, or when it began.
        times_ended: how often it was ended before all replies arrived.
    """

    __slots__ = ("_end", "_patience", "connection", "last_reply", "times_ended")

    def __init__(self, connection: Any, end: float, patience: float = math.inf) -> None:
        self.connection = connection
        self._end, self._patience = end, patience
        self.times_ended = 0
        self.last_reply = monotonic()

    @property
    def is_ended(self) -> bool:
        """Whether it was ended before all replies arrived."""
        return self.times_ended > 0

    @property
    def until(self) -> float:
        """The latest time for its next reply."""
        return min(self.last_reply + self._patience, self._end)

    def end(self) -> None:
        """Make the exchange fail by closing its connection; needs no task, which may be cancelled.

        A second call notifies the reader and writer directly, in case the event loop has lost the
        callback that does so.
        """
        if self.is_ended:
            fail_waiting(self.connection)
        self.times_ended += 1
        abort(self.connection)

    async def read(self, parser: ReplyParser, count: int, replies: list[Any]) -> None:
        """Append the replies as they arrive, as bytes whatever the client decodes.

        Raises:
            ConnectionError, InvalidResponse: the client library's.
        """
        connection = self.connection
        try:
            while len(replies) < count:
                reader = connection._reader
                data = b"" if reader is None else await reader.read(READ_SIZE)
                if not data:
                    raise client_errors.closed(connection)
                self.last_reply = monotonic()
                parser.feed(data)
                parser.take(replies, count)
        except ProtocolError as error:
            raise client_errors.garbled(connection, str(error)) from None
        except OSError as error:
            if is_of_handler(error):
                raise
            raise client_errors.closed(connection, f"error while reading: {error}") from error

"""What a courier carries, and the exchange in which it is carried."""

from __future__ import annotations

import asyncio
from typing import Any

from redis_lock_decorators.flow.patience import end_of
from redis_lock_decorators.world.loans import abort


class Request:
    """A command that waits for a trip.

    Attributes:
        reply: what its reply is told to.
        end: until when its caller waits for its turn.
        alone: it travels with no other: one of those that it went with failed them all.
    """

    __slots__ = ("_since", "_until", "alone", "command", "end", "reply")

    def __init__(
        self, command: tuple[Any, ...], reply: asyncio.Future[Any], until: float, now: float
    ) -> None:
        self.command = command
        self.reply = reply
        self.alone = False
        self._since, self._until, self.end = now, until, end_of(until)

    def last(self, answered: float) -> float:
        """How long its caller waits for a server that answered others until then, and is silent.

        To wait for its turn has cost nothing of this; the end of the caller's own time is the end.
        """
        if self.end <= self._until:
            return self._until
        return max(self._until, min(self.end, answered + self._until - self._since))

    def tell(self, reply: object) -> None:
        """Tell the reply or the error to the caller, unless that has gone."""
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


class Trip:
    """An exchange that is under way on a connection."""

    __slots__ = ("_connection", "cut", "until")

    def __init__(self, connection: Any, until: float) -> None:
        self._connection = connection
        self.until = until
        self.cut = False

    def end(self) -> None:
        """Make the exchange fail, by closing its connection; in no task that could be cancelled."""
        self.cut = True
        abort(self._connection)

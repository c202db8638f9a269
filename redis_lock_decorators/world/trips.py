"""What a courier carries, and the exchange in which it is carried."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from redis_lock_decorators.flow.patience import end_of
from redis_lock_decorators.world.clock import monotonic
from redis_lock_decorators.world.loans import abort


class Carrier(Protocol):
    """A way to a client's server."""

    def carry(
        self, commands: Sequence[tuple[Any, ...]], until: float
    ) -> Coroutine[Any, Any, list[Any]]:
        """Send commands together and return their replies; an error reply is an item.

        Raises the client's TimeoutError if not all came by ``until``, in monotonic seconds. An
        error before a byte of them has left, also a cancellation, is marked as unsent.
        """

    @property
    def resends(self) -> bool:
        """Whether a command may be sent again after a lost reply, by the client itself."""

    def no_reply(self) -> Exception:
        """The client's TimeoutError."""

    def close(self) -> None:
        """Close what is open for this carrier alone."""

    async def distrust(self) -> None:
        """Drop idle connections: one gave a reply that belonged to another command."""


class Request:
    """A command that waits for a trip.

    Attributes:
        reply: what its reply is told to.
        end: until when its caller waits for its turn.
        alone: it travels with no other: one of those that it went with failed them all.
        first: it leaves before others, and is given no more than its own time in any trip.
    """

    __slots__ = ("_since", "_until", "alone", "command", "end", "first", "reply")

    def __init__(
        self,
        command: tuple[Any, ...],
        reply: asyncio.Future[Any],
        until: float,
        now: float,
        first: bool = False,
    ) -> None:
        self.command = command
        self.reply = reply
        self.alone = False
        self.first = first
        self._since, self._until, self.end = now, until, end_of(until)

    def last(self, answered: float) -> float:
        """How long its caller waits for a server that answered others until then, and is silent.

        To wait for its turn has cost nothing of this; the end of the caller's own time is the end.
        """
        if self.end <= self._until:
            return self._until
        return max(self._until, min(self.end, answered + self._until - self._since))

    def patience(self, answered: float) -> float:
        """Until when one that is ``first`` waits for a server that was heard last at a time."""
        return self._until + max(0.0, answered - self._since)

    def tell(self, reply: object) -> None:
        """Tell the reply or the error to the caller, unless that has gone."""
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


class Trip:
    """An exchange that is under way on a connection.

    Args:
        end: the latest time for its last reply, in monotonic seconds.
        patience: seconds to wait for each reply.

    Attributes:
        until: when it is to be ended if no reply comes before.
    """

    __slots__ = ("_end", "_patience", "connection", "cut", "until")

    def __init__(self, connection: Any, end: float, patience: float = math.inf) -> None:
        self.connection = connection
        self._end, self._patience = end, patience
        self.cut = False
        self.go_on()

    def go_on(self) -> None:
        """Wait for the next reply."""
        self.until = min(self._end, monotonic() + self._patience)

    def end(self) -> None:
        """Make the exchange fail, by closing its connection; in no task that could be cancelled."""
        self.cut = True
        abort(self.connection)

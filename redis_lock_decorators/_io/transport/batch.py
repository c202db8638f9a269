"""What a courier carries, and the exchange in which it is carried."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.timeouts import Until, is_repeated
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.borrowed import abort, fail_waiting

#: What begins with a lock.
BEGINS = ("acquire", "acquire_fenced", "enqueue")
_BEGINNINGS = {part for verb in BEGINS for part in _lua.script(verb)}


class Transport(Protocol):
    """A way to a client's server."""

    def send_batch(
        self, commands: Sequence[tuple[Any, ...]], until: float
    ) -> Coroutine[Any, Any, list[Any]]:
        """Send commands together and return their replies; an error reply is an item.

        Raises the client's TimeoutError if not all came by ``until``, in monotonic seconds. An
        error before a byte of them has left, also a cancellation, is marked as unsent.
        """

    @property
    def may_resend(self) -> bool:
        """Whether a command may be sent again after a lost reply, by the client itself."""

    def no_reply(self) -> Exception:
        """The client's TimeoutError."""

    def close(self) -> None:
        """Close what is open for this carrier alone."""

    async def drop_idle_connections(self) -> None:
        """Drop idle connections: one gave a reply that belonged to another command."""


class Request:
    """A command that waits for a trip.

    Attributes:
        reply: what its reply is told to.
        end: until when its caller waits for its turn.
        alone: it travels with no other: one of those that it went with failed them all.
        first: it leaves before others, and is given no more than its own time in any trip.
        time: how many seconds its caller waits for a server that is silent.
        beside: it was sent on another connection too.
        again: it was sent before, and no reply came.
    """

    __slots__ = (
        "_since",
        "_until",
        "again",
        "alone",
        "beside",
        "command",
        "end",
        "first",
        "reply",
        "time",
    )

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
        self.alone = self.beside = False
        self.first, self.again = first, is_repeated(until)
        self._since, self._until, self.time = now, until, until - now
        self.end = until.end if isinstance(until, Until) else until

    def last(self, answered: float) -> float:
        """How long its caller waits for a server that answered others until then, and is silent.

        To wait for its turn has cost nothing of this; the end of the caller's own time is the end.
        """
        until, end = self._until, self.end
        if end <= until:
            return until
        last = answered + until - self._since
        return until if last < until else min(last, end)

    def patience(self, answered: float) -> float:
        """Until when one that is ``first`` waits for a server that was heard last at a time."""
        return self._until + max(0.0, answered - self._since)

    def notify(self, reply: object) -> None:
        """Tell the reply or the error to the caller, unless that has gone."""
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


class PendingRequests:
    """The requests that wait for a trip: each kind in its order, those that begin last.

    Who waits to let a lock go, or has sent a script by its name in vain, began before those who
    have not begun. A lease must not end because very many come after its holder. Of those that
    begin, those that begin once more go first: others who want the same lock came after them.
    """

    __slots__ = ("_beginning", "_beginning_again", "_others")

    def __init__(self) -> None:
        self._others: deque[Request] = deque()
        self._beginning_again: deque[Request] = deque()
        self._beginning: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._others) + len(self._beginning_again) + len(self._beginning)

    def __bool__(self) -> bool:
        return bool(self._others or self._beginning_again or self._beginning)

    @property
    def are_new(self) -> bool:
        """Whether none of them has begun, or was sent, before."""
        return not self._others and not self._beginning_again

    def lines(self) -> tuple[deque[Request], ...]:
        """The lines in which they leave, one after the other; the caller takes them out."""
        return self._others, self._beginning_again, self._beginning

    def add(self, request: Request) -> None:
        """Have a request wait."""
        command = request.command
        if request.first:
            self._others.appendleft(request)
        elif command[1] in _BEGINNINGS if command[0] == "EVALSHA" else command[0] == "SET":
            (self._beginning_again if request.again else self._beginning).append(request)
        else:
            self._others.append(request)

    def put_back(self, batch: list[Request]) -> None:
        """Have those that did not travel leave next."""
        self._others.extendleft(reversed(batch))

    def keep(self, is_kept: Callable[[Request], bool]) -> None:
        """Leave out the others."""
        self._others = deque(filter(is_kept, list(self._others)))
        self._beginning_again = deque(filter(is_kept, list(self._beginning_again)))
        self._beginning = deque(filter(is_kept, list(self._beginning)))

    def first_end(self) -> float:
        """When the first of their callers wants to wait no longer; infinity if there is none."""
        every = (*self._others, *self._beginning_again, *self._beginning)
        return min([one.end for one in every], default=math.inf)


class Exchange:
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
        until = monotonic() + self._patience
        self.until = until if until < self._end else self._end

    def end(self) -> None:
        """Make the exchange fail, by closing its connection; in no task that could be cancelled.

        The second time, who reads or writes is told past the event loop, which may have lost that.
        """
        if self.cut:
            fail_waiting(self.connection)
        self.cut = True
        abort(self.connection)


def begins(command: tuple[Any, ...]) -> bool:
    """Whether somebody begins with a lock by this, by scripts or without."""
    name = command[0]
    return name == "SET" or (name in ("EVALSHA", "EVAL") and command[1] in _BEGINNINGS)

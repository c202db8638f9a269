"""Requests, the queue in which they wait to be sent, and the exchange that sends a batch."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Protocol

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.timeouts import TimeLimits, is_repeated
from redis_lock_decorators._io.background.outcomes import settle

#: The scripts that start an acquisition.
STARTS = ("acquire", "acquire_fenced", "enqueue")
#: The scripts that release a lock or undo an acquisition.
ENDS = ("release", "min_hold", "unlock", "cancel")
_RENEWAL_SCRIPT = _lua.script("renew")
_START_SCRIPTS = {part for verb in STARTS for part in _lua.script(verb)}


class Transport(Protocol):
    """A method of sending commands to a client's server.

    Attributes:
        opens_connections: it opens connections first if there are none, and calls its batcher's
            ``sendings`` after that.
    """

    opens_connections: bool

    def send_batch(
        self, commands: Sequence[tuple[Any, ...]], until: float
    ) -> Coroutine[Any, Any, list[Any]]:
        """Send commands together and return their replies; an error reply is an item.

        Raises the client's TimeoutError if a reply is missing at ``until``, in monotonic seconds.
        An error, also a cancellation, before the first byte was sent is marked as unsent.
        """

    @property
    def may_resend(self) -> bool:
        """Whether the client itself may send a command again after a lost reply."""

    def no_reply(self) -> Exception:
        """The client's TimeoutError."""

    def close(self) -> None:
        """Close the connections that only this transport uses."""

    async def drop_idle_connections(self) -> None:
        """Drop idle connections: one gave a reply that belonged to another command."""


class Request:
    """A command that is queued for a batch.

    Attributes:
        reply: the future of its reply.
        end: until when its caller waits for it to be sent.
        alone: it is sent without others: a batch with it has failed.
        first: it is sent before others, and no exchange with it may outlast its own time.
        reply_seconds: how long its caller waits for a silent server.
        is_sent_twice: it was sent over a second connection too.
        sending: called before a transport sends it, if given.
        since: when it was queued.
    """

    __slots__ = (
        "_until",
        "alone",
        "command",
        "end",
        "first",
        "is_sent_twice",
        "reply",
        "reply_seconds",
        "sending",
        "since",
    )

    def __init__(
        self,
        command: tuple[Any, ...],
        reply: asyncio.Future[Any],
        until: float,
        now: float,
        first: bool = False,
        sending: Sending | None = None,
    ) -> None:
        self.command = command
        self.sending = sending
        self.reply = reply
        self.alone = self.is_sent_twice = False
        self.first = first
        self.since = now
        self._until = until
        self.reply_seconds = until - now
        self.end = until.end if isinstance(until, TimeLimits) else until

    @property
    def is_repeated(self) -> bool:
        """Whether it was sent before, and no reply arrived."""
        return is_repeated(self._until)

    def deadline(self, last_reply: float) -> float:
        """The latest time for a reply of a server that is silent since its ``last_reply``.

        The time in the queue before that does not count, but ``end`` remains the limit.
        """
        until, end = self._until, self.end
        if end <= until:
            return until
        latest = last_reply + until - self.since
        return until if latest < until else min(latest, end)

    def urgent_deadline(self, last_reply: float) -> float:
        """The same for a request that is ``first``; ``end`` does not limit it."""
        return self._until + max(0.0, last_reply - self.since)

    def set_reply(self, reply: object) -> None:
        """Set the reply or the error, unless the caller has one or was cancelled."""
        if not self.reply.done():
            settle(self.reply, reply)


class Redirection(Exception):
    """A reply that another node of the cluster has to give, for a batcher only.

    The batcher sends the command there by a separate batcher, so that no other request waits if
    that node is silent.

    Args:
        key: the key of the separate batcher.
        transport: what sends commands to that node.

    Attributes:
        asks: it holds for one command only, as the slot is still being moved.
    """

    def __init__(self, key: object, transport: Transport, asks: bool = False) -> None:
        super().__init__(key)
        self.key, self.transport, self.asks = key, transport, asks


class PendingRequests:
    """The queued requests: each kind in its order, and those that start an acquisition last.

    A request that releases or renews a lock, or sends a script's text after its hash was unknown,
    continues something: a lease must not expire because many new requests are queued. Repeated
    starts precede new ones, as other requests for the same lock arrived after them.
    """

    __slots__ = ("_continuing", "_first", "_repeated_starts", "_starts")

    def __init__(self) -> None:
        self._first: deque[Request] = deque()
        self._continuing: deque[Request] = deque()
        self._repeated_starts: deque[Request] = deque()
        self._starts: deque[Request] = deque()

    def __len__(self) -> int:
        return sum(map(len, self.queues()))

    def __bool__(self) -> bool:
        return bool(self._first or self._continuing or self._repeated_starts or self._starts)

    @property
    def are_all_new(self) -> bool:
        """Whether each of them starts an acquisition and was not sent before."""
        return not self._first and not self._continuing and not self._repeated_starts

    def queues(self) -> tuple[deque[Request], ...]:
        """The queues in the order in which they are sent; the caller removes what it sends."""
        return *self.sent_before_new(), self._starts

    def sent_before_new(self) -> tuple[deque[Request], ...]:
        """Those queues whose requests do not start an acquisition, or were sent before."""
        return self._first, self._continuing, self._repeated_starts

    def add(self, request: Request) -> None:
        command = request.command
        if request.first:
            self._first.append(request)  # in order: no recheck may overtake a renewal
        elif command[1] in _START_SCRIPTS if command[0] == "EVALSHA" else command[0] == "SET":
            (self._repeated_starts if request.is_repeated else self._starts).append(request)
        else:
            self._continuing.append(request)

    def put_back(self, batch: list[Request]) -> None:
        """Queue requests that were not sent before all others."""
        self._first.extendleft(reversed(batch))

    def retain(self, is_retained: Callable[[Request], bool]) -> None:
        """Remove all other requests."""
        self._first = deque(filter(is_retained, list(self._first)))
        self._continuing = deque(filter(is_retained, list(self._continuing)))
        self._repeated_starts = deque(filter(is_retained, list(self._repeated_starts)))
        self._starts = deque(filter(is_retained, list(self._starts)))

    def earliest_end(self) -> float:
        """When the first of them times out; infinity if there are none."""
        ends = [request.end for queue in self.queues() for request in queue]
        return min(ends, default=math.inf)


def starts_acquisition(command: tuple[Any, ...]) -> bool:
    name = command[0]
    return name == "SET" or (name in ("EVALSHA", "EVAL") and command[1] in _START_SCRIPTS)


def is_renewal(command: tuple[Any, ...]) -> bool:
    return command[0] in ("EVALSHA", "EVAL") and command[1] in _RENEWAL_SCRIPT


def ends_lease(command: tuple[Any, ...]) -> bool:
    """Whether a command releases a lock, or undoes an acquisition that may have been run."""
    return command[0] in ("EVALSHA", "EVAL") and command[1] in _end_scripts()


@cache
def _end_scripts() -> set[bytes]:
    plain = [_lua.script(verb) for verb in ENDS]
    storing = [_lua.with_owner_info(verb) for verb in ENDS]
    return {part for script in plain + storing for part in script}

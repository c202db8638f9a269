"""Requests of tasks that are under way at the same time travel together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from redis_lock_decorators.flow.requests import Unsent

#: The most requests that one trip takes: while the server works on one load, those whom the last
#: one served prepare their next requests.
LOAD = 100
#: Seconds between two looks at what takes too long: one timer then, not one for each request.
LOOK = 0.25
#: Looks without a reply after which the server is silent, and not only busy with other requests.
SILENT = 4
#: The least time for a reply, in seconds: also of a request that left shortly before its end.
LEAST = 0.5


class Carrier(Protocol):
    """A way to a client's server."""

    async def carry(self, commands: Sequence[tuple[Any, ...]], until: float) -> list[Any]:
        """Send commands together and return their replies; an error reply is an item.

        Raises the client's TimeoutError if not all came by ``until``, in monotonic seconds.
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


#: A command that waits for the next trip, what its reply is told to, and until when it may come.
Request = tuple[tuple[Any, ...], asyncio.Future[Any], float]


class Trip:
    """An exchange that is under way on a connection."""

    __slots__ = ("_closing", "_connection", "cut", "until")

    def __init__(self, connection: Any, until: float) -> None:
        self._connection = connection
        self.until = until
        self.cut = False

    def end(self) -> None:
        """Make the exchange fail, by closing its connection."""
        if not self.cut:
            self.cut = True
            self._closing = asyncio.ensure_future(self._connection.disconnect())


class Courier:
    """Carries one request directly, and those that come meanwhile together after it.

    Never more than one trip is under way, so a client's tasks share one connection (in a cluster,
    one for each node, each with its own courier). Of one event loop.

    Attributes:
        carrier: the way past the client's own methods, once there is one.
        kept: a connection of the client's pool that only we use, once there is one.
        trip: the exchange under way, ended here if it takes too long.
    """

    __slots__ = (
        "_busy",
        "_loop",
        "_nodes",
        "_quiet",
        "_skipped",
        "_timer",
        "_trips",
        "_waiting",
        "carrier",
        "kept",
        "trip",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[object, Courier] = {}
        self.carrier: Any = None
        self.kept: Any = None
        self.trip: Trip | None = None
        self._quiet = 0  # looks since the last reply
        self._skipped = False
        self._busy = False
        self._waiting: list[Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._trips: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request would have to wait for others."""
        return self._busy

    def beside(self, node: object) -> Courier:
        """Another courier: to one node of a cluster, or for what cannot wait."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = Courier()
        return found

    async def exchange(self, carrier: Carrier, command: tuple[Any, ...], until: float) -> Any:
        """Send a command and return its reply, in the calling task if nothing is under way."""
        if self._timer is None:
            self._quiet = 0
            self._timer = self._loop.call_later(LOOK, self._look, carrier)
        if self._busy:
            reply = self._loop.create_future()
            self._waiting.append((command, reply, until))
            return await reply
        self._busy = True
        try:
            (reply,) = await carrier.carry([command], until)
            self._quiet = 0
        finally:
            if self._waiting:
                self._trips = asyncio.ensure_future(self._travel(carrier))
            else:
                self._busy = False
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _look(self, carrier: Carrier) -> None:
        now, timer = time.monotonic(), self._timer
        # After something has blocked the event loop, what came meanwhile is to be read first.
        was_blocked = timer is not None and self._loop.time() > timer.when() + LOOK
        self._skipped = was_blocked and not self._skipped
        if not self._skipped:
            self._quiet += 1
            if self.trip is not None and self.trip.until <= now:
                self.trip.end()
            self._in_time(self._waiting, carrier)
        again = self._busy or self._waiting
        self._timer = self._loop.call_later(LOOK, self._look, carrier) if again else None

    def _in_time(self, requests: list[Request], carrier: Carrier) -> list[Request]:
        """Those that somebody waits for; who waited for too long is told."""
        now = time.monotonic()
        for _, reply, until in requests:
            if until <= now and not reply.done():
                is_silent = self._quiet >= SILENT
                reply.set_exception(carrier.no_reply() if is_silent else self._unsent())
        return [request for request in requests if not request[1].done()]

    def _unsent(self) -> Unsent:
        others = len(self._waiting)
        return Unsent(f"its request did not leave in time, as {others} of this event loop wait")

    async def _travel(self, carrier: Carrier) -> None:
        try:
            while self._waiting:
                load, self._waiting = self._waiting[:LOAD], self._waiting[LOAD:]
                await self._deliver(carrier, self._in_time(load, carrier))
                if not self._waiting:
                    await asyncio.sleep(0)  # those who were served have their next request ready
        finally:
            self._busy = False
            for _, reply, _ in self._waiting:  # the event loop is going down
                reply.cancel()

    async def _deliver(self, carrier: Carrier, load: list[Request]) -> None:
        if not load:
            return
        commands, answers, ends = zip(*load, strict=True)
        try:
            until = max(*ends, time.monotonic() + LEAST)
            replies = await carrier.carry(commands, until)
            self._quiet = 0
        except Exception as error:
            replies = [error] * len(load)
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        for answer, reply in zip(answers, replies, strict=True):
            if answer.done():
                continue
            if isinstance(reply, Exception):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)

"""What flows need of the event loop that works for them in the background."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from redis_lock_decorators._flow.port import Port

P = TypeVar("P", bound=Port)


class Loop(Protocol):
    """An event loop, as all who work on it see it."""

    def now(self) -> float:
        """Monotonic seconds."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        """Do work in the background; ``ended`` is called after it, also if it never began."""

    def port(self, port: P) -> P:
        """The port on this event loop to the client of a port."""


class Alarm(Protocol):
    """Rings at the earliest of the times it was set to."""

    def set(self, when: float) -> None:
        """Ring by this time."""


class Subscription(Protocol):
    """A connection of its own to a node, that hears a channel.

    Whatever the other side does, closing it takes no time, and ends what else is under way.
    """

    async def send(self, *command: Any) -> None:
        """Send a command."""

    async def receive(self, tell: Callable[[Any], None]) -> None:
        """Tell every message and reply, an error that the server replies with too.

        Ends, or fails, when the line is closed or breaks, or if ``tell`` raises.
        """

    async def close(self) -> None:
        """Close the connection, without a word to the other side."""

    def abort(self) -> None:
        """Have ``hear`` end, also where ``close`` was cut short; it may have been called before."""

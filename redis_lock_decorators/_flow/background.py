"""What flows need of the event loop that runs their background work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from redis_lock_decorators._flow.port import Port

P = TypeVar("P", bound=Port)


class Loop(Protocol):
    """An event loop for background work."""

    def now(self) -> float:
        """Monotonic seconds."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        """Run work in the background; ``ended`` is called after it, even if it never started."""

    def port(self, port: P) -> P:
        """The port of this event loop for the client of another port."""


class Timer(Protocol):
    """A timer that calls a function at the earliest of the times it was set to."""

    def set(self, when: float) -> None:
        """Call the function by this time."""


class Subscription(Protocol):
    """A separate connection to a node that is subscribed to a channel.

    Closing it never waits for the server, and ends all other calls on it.
    """

    async def send(self, *command: Any) -> None:
        """Send a command."""

    async def receive(self, handle: Callable[[Any], None], /) -> None:
        """Call ``handle`` with every message and reply, including error replies.

        Returns or fails when the connection is closed or breaks, or if ``handle`` raises.
        """

    async def close(self) -> None:
        """Close the connection, without a command to the server."""

    def abort(self) -> None:
        """Make ``receive`` return, even if ``close`` was cut short; may be called twice."""

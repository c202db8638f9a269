"""What a subscriber needs from outside: an event loop, and connections to subscribe on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from redis_lock_decorators._flow.background import Loop, Subscription, Timer
from redis_lock_decorators._flow.port import Port


class SubscriberPort(Port, Protocol):
    """A client whose server can be subscribed to."""

    async def subscription(self, key: bytes) -> Subscription:
        """Open a RESP2 connection for messages to the node of a key; fails within seconds."""


class SubscriberLoop(Loop, Protocol):
    """The event loop that runs subscribers.

    Attributes:
        wanted: the subscribers that still have work to do; the loop runs while there are any.
    """

    wanted: set[Any]

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""

    def timer(self, call: Callable[[], None]) -> Timer:
        """A timer that calls ``call`` on the event loop."""

    async def sleep(self, seconds: float) -> None:
        """Pause a coroutine on the event loop."""

    def stop_if_idle(self) -> None:
        """Stop the loop's thread if no work is left."""

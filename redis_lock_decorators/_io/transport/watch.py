"""Transactions on a watched key: WATCH, GET and MULTI, then EXEC, over a private connection.

If MULTI is refused, the server executes what follows it one by one, even if the key has changed. So
nothing that changes anything is sent before the reply to MULTI, which comes with that to GET.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.requests import raise_failure
from redis_lock_decorators._io import client_errors


class Exclusive(Protocol):
    """A private connection that only one transaction uses."""

    async def exchange(
        self, commands: Sequence[tuple[Any, ...]], sending: Sending | None = None
    ) -> list[Any]:
        """Send commands together and return their replies; an error reply is an item.

        ``sending`` is called just before the first byte is sent.
        """

    def end(self, is_kept: bool) -> None:
        """Keep the connection for other requests, or close it."""


class Watch:
    """A watched key; it ends with its connection out of the transaction or closed."""

    __slots__ = ("_connection", "_is_open")

    def __init__(self, connection: Exclusive) -> None:
        self._connection = connection
        self._is_open = False

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.end(is_kept=error is None and not self._is_open)

    async def holder(self, key: bytes) -> Any:
        self._is_open = True
        try:
            replies = await self._connection.exchange([("WATCH", key), ("GET", key), ("MULTI",)])
            raise_failure(replies)
        except Exception as error:
            client_errors.mark_caught(error)  # nothing that changes anything was sent
            raise
        return replies[1]

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        replies = await self._connection.exchange([*commands, ("EXEC",)], sending)
        raise_failure(replies)
        self._is_open = False
        found: list[Any] | None = replies[-1]
        return found

"""Transactions on a watched key: WATCH and GET, then MULTI and EXEC, over a private connection.

MULTI, the commands and EXEC are sent together. If MULTI is refused, the server executes the
commands one by one, even if the key has changed. So MULTI is sent alone until it and EXEC were
permitted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.requests import raise_failure
from redis_lock_decorators._io import client_errors, error_replies


class ClientState(Protocol):
    """The state of the client.

    Attributes:
        has_transacted: MULTI and EXEC were permitted the last time they were sent.
    """

    has_transacted: bool


class Exclusive(Protocol):
    """A private connection that only one transaction uses."""

    async def exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands together and return their replies; an error reply is an item."""

    def end(self, is_kept: bool) -> None:
        """Keep the connection for other requests, or close it."""


class Watch:
    """A watched key; it ends with its connection unwatched or closed."""

    __slots__ = ("_client", "_client_state", "_connection", "_is_watching")

    def __init__(self, client: Any, client_state: ClientState, connection: Exclusive) -> None:
        self._client = client
        self._client_state = client_state
        self._connection = connection
        self._is_watching = False

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.end(is_kept=error is None and not self._is_watching)

    async def holder(self, key: bytes) -> Any:
        self._is_watching = True
        try:
            replies = await self._connection.exchange([("WATCH", key), ("GET", key)])
            raise_failure(replies)
        except Exception as error:
            client_errors.mark_caught(error)  # nothing that changes anything was sent
            raise
        return replies[1]

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        state = self._client_state
        try:
            is_begun = not state.has_transacted
            if is_begun:
                await self._begin()
            if sending is not None:
                sending()
            if is_begun:
                replies = await self._connection.exchange([*commands, ("EXEC",)])
            else:
                replies = await self._execute_together(commands)
            raise_failure(replies)
        except Exception as error:
            if error_replies.lacks(error) == "right":
                state.has_transacted = False
            raise
        state.has_transacted, self._is_watching = True, False
        found: list[Any] | None = replies[-1]
        return found

    async def _begin(self) -> None:
        try:
            raise_failure(await self._connection.exchange([("MULTI",)]))
        except Exception as error:
            client_errors.mark_caught(error)  # nothing that changes anything was sent
            raise

    async def _execute_together(self, commands: tuple[tuple[Any, ...], ...]) -> list[Any]:
        begun, *replies = await self._connection.exchange([("MULTI",), *commands, ("EXEC",)])
        if isinstance(begun, Exception):
            self._client_state.has_transacted = False
            refused = client_errors.closed(self._client, "MULTI is refused now")
            raise client_errors.caused(refused, begun)
        return replies

"""Transactions on a watched key by a pipeline of a wrapped client, which may change commands.

redis-py's pipelines need some care:

- If a connection breaks while a key is watched, they raise the error of a changed key, though the
  transaction may have been executed.
- They keep their connection after any error.
- They send MULTI, the commands and EXEC together. If MULTI is refused, the server executes the
  commands one by one, even if the key has changed. So MULTI is sent alone until it and EXEC were
  allowed once.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.requests import raise_failure
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.client_methods import (
    disconnect,
    disconnect_idle,
    undecoded,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batch_sender import MIN_REPLY_TIME
from redis_lock_decorators._io.transport.encoding import encoded
from redis_lock_decorators._io.unconfigured import drop_unconfigured, drop_unconfigured_idle

W = TypeVar("W", bound="_Watch")


class ClientState(Protocol):
    """The state of the client.

    Attributes:
        has_transacted: MULTI and EXEC were permitted the last time they were sent.
    """

    has_transacted: bool


class _Watch:
    """A watched key; subclasses wait for the client's methods and close its connections."""

    __slots__ = ("_client", "_client_state", "_options", "_pipeline", "_until")

    def __init__(self, client: Any, client_state: ClientState, until: float) -> None:
        self._client = client
        self._until = until
        self._client_state = client_state
        self._options = undecoded(client)
        self._pipeline = client.pipeline()

    async def _result(self, call: Any) -> Any:
        """The result of a call of a client's method."""
        raise NotImplementedError

    async def _disconnect(self, connection: Any) -> None:
        raise NotImplementedError

    async def _disconnect_client(self) -> None:
        raise NotImplementedError

    def _drop_unconfigured(self, error: BaseException) -> None:
        raise NotImplementedError

    async def __aenter__(self: W) -> W:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            # Closed instead of UNWATCH, which needs a permission of its own.
            if self._pipeline.watching or not _keeps_connection(error):
                await self._drop()
        finally:
            await self._result(self._pipeline.reset())
        if error is not None:
            self._drop_unconfigured(error)
        if error_replies.is_elsewhere(error):
            await self._disconnect_client()

    async def holder(self, key: bytes) -> Any:
        try:
            await self._result(self._pipeline.watch(key))
            return await self._result(self._pipeline.execute_command("GET", key, **self._options))
        except UnicodeDecodeError as error:  # redis-py 3.5 decodes it regardless
            return error.object
        except Exception as error:
            # Only reading commands were sent: nothing has changed.
            failure = client_errors.mark_unsent(client_errors.meant(self._client, error))
            raise failure from failure.__cause__

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        if not self._client_state.has_transacted:
            return await self._execute_first(commands, sending)
        self._pipeline.multi()
        for command in commands:
            self._pipeline.execute_command(*encoded(command))
        if sending is not None:
            sending()
        try:
            replies: list[Any] = await self._result(self._pipeline.execute(raise_on_error=False))
        except Exception as error:
            if error_replies.is_change(error):
                return None
            failure = self._meant(error)
            raise failure from failure.__cause__
        return replies

    async def _execute_first(
        self, commands: tuple[tuple[Any, ...], ...], sending: Sending | None
    ) -> list[Any] | None:
        """Execute the first transaction, when MULTI and EXEC may be forbidden."""
        try:
            await self._result(self._pipeline.immediate_execute_command("MULTI"))
        except Exception as error:
            # No command that changes anything was sent.
            failure = client_errors.mark_unsent(client_errors.meant(self._client, error))
            raise failure from failure.__cause__
        if sending is not None:
            sending()
        try:
            replies = await self._exchange([*map(encoded, commands), ("EXEC",)])
        except BaseException:
            await self._drop()
            raise
        try:
            raise_failure(replies)
        except Exception:
            await self._drop()  # older servers are still in the transaction if EXEC is refused
            raise
        self._client_state.has_transacted = True
        self._pipeline.watching = False
        found: list[Any] | None = replies[-1]
        return found

    async def _exchange(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands together and return their replies; an error reply is an item."""
        connection, replies = self._pipeline.connection, []
        await self._result(connection.send_packed_command(connection.pack_commands(commands)))
        for _ in commands:
            try:
                replies.append(await self._result(self._pipeline.parse_response(connection, "_")))
            except Exception as error:
                if not error_replies.is_reply(error):
                    raise
                replies.append(error)
        return replies

    async def _drop(self) -> None:
        """Close the pipeline's connection."""
        self._pipeline.watching = False  # otherwise it opens the connection again for UNWATCH
        connection = self._pipeline.connection
        if connection is not None:
            await self._disconnect(connection)

    def _meant(self, error: Exception) -> Exception:
        """The meaning of an error after MULTI, the commands and EXEC were sent together."""
        if error_replies.is_no_transaction(error):
            self._client_state.has_transacted = False
            refused = client_errors.closed(self._client, "MULTI is refused now")
            return client_errors.caused(refused, error)
        if error_replies.lacks(error) == "right":
            self._client_state.has_transacted = False
        return client_errors.meant(self._client, error)


class BlockingWatch(_Watch):
    """A key watched by a blocking client."""

    __slots__ = ()

    async def _result(self, call: Any) -> Any:
        return call

    async def _disconnect(self, connection: Any) -> None:
        connection.disconnect()

    async def _disconnect_client(self) -> None:
        disconnect(self._client)

    def _drop_unconfigured(self, error: BaseException) -> None:
        drop_unconfigured(self._client, error)


class TaskWatch(_Watch):
    """A key watched by an asyncio client."""

    __slots__ = ()

    async def _result(self, call: Any) -> Any:
        try:
            # The least time is for the return of a connection to its pool.
            async with timeout(max(self._until - monotonic(), MIN_REPLY_TIME), call):
                try:
                    return await call
                except BaseException as error:  # also the cancellation when the time is over
                    self._drop_unconfigured(error)
                    raise
        except asyncio.TimeoutError as error:
            if is_of_handler(error):
                raise
            raise client_errors.no_reply(self._client) from None

    async def _disconnect(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)

    async def _disconnect_client(self) -> None:
        await disconnect_idle(self._client)

    def _drop_unconfigured(self, error: BaseException) -> None:
        drop_unconfigured_idle(self._client, error)


def _keeps_connection(error: BaseException | None) -> bool:
    """Whether the connection may return to the pool as it is; not after an interrupt."""
    return error is None or (isinstance(error, Exception) and client_errors.keeps_connection(error))

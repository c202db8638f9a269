"""A key that is watched by a pipeline of the client: WATCH and GET, then MULTI and EXEC.

A pipeline tells a connection that breaks while it watches in the words of a key that has changed,
though what it had sent may have been run. And it keeps its connection whatever came over it.
"""

from __future__ import annotations

from typing import Any

from redis_lock_decorators.world import failures
from redis_lock_decorators.world.clients import disconnect, disconnect_idle, undecoded
from redis_lock_decorators.world.wire import encoded


class BlockingWatch:
    """A key watched by a blocking client."""

    __slots__ = ("_client", "_options", "_pipeline")

    def __init__(self, client: Any) -> None:
        self._client = client
        self._options = undecoded(client)
        self._pipeline = client.pipeline()

    async def __aenter__(self) -> BlockingWatch:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if not _keeps_connection(error):
                self._drop()
        finally:
            self._pipeline.reset()
        if failures.is_elsewhere(error):
            disconnect(self._client)

    async def holder(self, key: bytes) -> Any:
        try:
            self._pipeline.watch(key)
            return self._pipeline.execute_command("GET", key, **self._options)
        except UnicodeDecodeError as error:  # redis-py 3.5 decodes all the same
            return error.object
        except Exception as error:
            # What only looked at the key has changed nothing.
            failure = failures.unsent(failures.meant(self._client, error))
            raise failure from failure.__cause__

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any] | None:
        _queue(self._pipeline, commands)
        try:
            replies: list[Any] = self._pipeline.execute()
        except Exception as error:
            if failures.is_change(error):
                return None
            failure = failures.meant(self._client, error)
            raise failure from failure.__cause__
        return replies

    def _drop(self) -> None:
        connection = _given_up(self._pipeline)
        if connection is not None:
            connection.disconnect()


class TaskWatch:
    """A key watched by an asyncio client."""

    __slots__ = ("_client", "_options", "_pipeline")

    def __init__(self, client: Any) -> None:
        self._client = client
        self._options = undecoded(client)
        self._pipeline = client.pipeline()

    async def __aenter__(self) -> TaskWatch:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if not _keeps_connection(error):
                await self._drop()
        finally:
            await self._pipeline.reset()
        if failures.is_elsewhere(error):
            await disconnect_idle(self._client)

    async def holder(self, key: bytes) -> Any:
        try:
            await self._pipeline.watch(key)
            return await self._pipeline.execute_command("GET", key, **self._options)
        except Exception as error:
            # What only looked at the key has changed nothing.
            failure = failures.unsent(failures.meant(self._client, error))
            raise failure from failure.__cause__

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any] | None:
        _queue(self._pipeline, commands)
        try:
            replies: list[Any] = await self._pipeline.execute()
        except Exception as error:
            if failures.is_change(error):
                return None
            failure = failures.meant(self._client, error)
            raise failure from failure.__cause__
        return replies

    async def _drop(self) -> None:
        connection = _given_up(self._pipeline)
        if connection is not None:
            await connection.disconnect(nowait=True)


def _queue(pipeline: Any, commands: tuple[tuple[Any, ...], ...]) -> None:
    pipeline.multi()
    for command in commands:
        pipeline.execute_command(*encoded(command))


def _keeps_connection(error: BaseException | None) -> bool:
    """Whether the pool may have the connection back as it is; not after an interrupt."""
    return error is None or (isinstance(error, Exception) and failures.keeps_connection(error))


def _given_up(pipeline: Any) -> Any:
    """The connection of a pipeline, to be closed.

    It watches no more, or the pipeline would open it anew to say so.
    """
    pipeline.watching = False
    return pipeline.connection

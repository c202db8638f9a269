"""Subscriptions are closed immediately, and no command opens them again."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import TimeoutError as TimedOut

from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.transport import private_connection, subscriptions
from redis_lock_decorators._io.transport.subscriptions import (
    TaskSubscription,
    ThreadSubscription,
    task_subscription,
    thread_subscription,
)
from redis_lock_decorators._io.transport.task_connection import abort, fail_waiting


def with_silent_server(test: Callable[[int], Awaitable[None]]) -> None:
    """Run a test with a server that accepts connections and never replies."""

    async def run() -> None:
        async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.read(100):
                    pass
            finally:
                writer.close()

        server = await asyncio.start_server(ignore, "127.0.0.1", 0)
        await asyncio.wait_for(test(server.sockets[0].getsockname()[1]), 30)
        server.close()

    asyncio.run(run())


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


class Writer:
    def __init__(self) -> None:
        self.transport = Transport()


class Connection:
    """A connection whose peer does not answer the closing of TLS."""

    def __init__(self) -> None:
        self._writer = Writer()
        self.sent: list[Any] = []

    async def disconnect(self, nowait: bool = False) -> None:
        if not nowait:
            await asyncio.Event().wait()

    async def send_command(self, *command: Any) -> None:
        self.sent.append(command)


def test_subscription_is_closed_without_the_other_side() -> None:
    connection = Connection()
    transport = connection._writer.transport

    asyncio.run(asyncio.wait_for(TaskSubscription(connection).close(), 5))

    assert transport.aborted


def test_subscription_is_closed_though_its_closing_was_cancelled() -> None:
    connection: Any = Connection()
    subscription = TaskSubscription(connection)

    async def test() -> None:
        closing = start(subscription.close(), subscription.abort)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(0)

    asyncio.run(test())

    assert connection._writer.transport.aborted
    assert asyncio.run(subscription.send("PING")) is None
    assert connection.sent == []


def test_command_on_a_closed_subscription_opens_no_connection() -> None:
    async def test() -> list[Any]:
        connection = Connection()
        subscription = TaskSubscription(connection)
        await subscription.close()
        await subscription.send("PING")
        return connection.sent

    assert asyncio.run(test()) == []


def test_closing_a_subscription_ends_its_receive() -> None:
    async def test(port: int) -> None:
        subscription = await task_subscription(redis.asyncio.Redis(port=port), b"key")
        receiving = asyncio.ensure_future(subscription.receive(lambda reply: None))
        await asyncio.sleep(0)

        await subscription.close()

        with pytest.raises(redis.ConnectionError):
            await receiving

    with_silent_server(test)


def test_receive_reports_a_subscription_that_broke_before() -> None:
    ours, theirs = socket.socketpair()

    class Opened:
        _sock = ours
        _parser = SimpleNamespace(parse_error=redis.ResponseError)

        def disconnect(self) -> None:
            ours.close()

    async def test() -> None:
        subscription = ThreadSubscription(Opened())
        theirs.close()
        await subscription.send("SUBSCRIBE", "a")  # the connection breaks here
        with pytest.raises(redis.ConnectionError):
            await subscription.receive(lambda reply: None)

    with ours, theirs:
        asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize(
    ("own_limit", "expected"), [(2.0, 2.0), (None, private_connection.PATIENCE)]
)
def test_connecting_may_take_longer_than_a_reply(own_limit, expected) -> None:
    seen = []

    class Kind:
        socket_timeout = 0.05
        health_check_interval = 0

        def __init__(self, **parameters: Any) -> None:
            self.socket_connect_timeout = own_limit

        def connect(self) -> None:
            seen.append((self.socket_connect_timeout, self.socket_timeout))

    connection = private_connection.opened(Kind, {}, time.monotonic() + 60)

    assert seen == [(expected, 0.05)]
    assert connection.socket_timeout == 0.05


def test_opening_a_subscription_for_tasks_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_connection, "PATIENCE", 0.05)

    async def test(port: int) -> None:
        client = redis.asyncio.Redis(port=port, password="any")  # noqa: S106
        with pytest.raises(TimedOut):
            await task_subscription(client, b"key")

    with_silent_server(test)


def test_opening_a_subscription_for_threads_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*arguments: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(private_connection, "PATIENCE", 0.05)
    monkeypatch.setattr(subscriptions, "in_thread", never)

    async def test(port: int) -> None:
        with pytest.raises(TimedOut):
            await thread_subscription(redis.Redis(port=port), b"key")

    with_silent_server(test)


class Fake:
    """A connection to a fake of a server, whose writer has no transport."""

    __module__ = "redis.asyncio.connection"
    socket_timeout = None

    def __init__(self, **_: Any) -> None:
        self._reader = self._writer = None

    async def connect(self) -> None:
        self._reader = self._writer = SimpleNamespace()


def test_subscription_is_refused_where_it_cannot_be_aborted() -> None:
    """Its waiters poll, as with a blocking client of such a fake."""
    made: list[Fake] = []

    def kind(**options: Any) -> Fake:
        made.append(Fake(**options))
        return made[-1]

    client = SimpleNamespace(
        connection_pool=SimpleNamespace(connection_class=kind, connection_kwargs={})
    )
    with pytest.raises(TypeError, match="no transport"):
        asyncio.run(asyncio.wait_for(task_subscription(client, b"key"), 5))

    assert [connection._writer for connection in made] == [None]
    made[0]._writer = SimpleNamespace()
    abort(made[0])
    fail_waiting(made[0])

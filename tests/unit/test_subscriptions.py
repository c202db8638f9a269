"""Connections of asyncio clients that hear: closed at once, and never opened again by a command."""

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

from redis_lock_decorators._io.background.supervised import start
from redis_lock_decorators._io.transport import private_connection, subscriptions
from redis_lock_decorators._io.transport.subscriptions import (
    TaskSubscription,
    ThreadSubscription,
    task_subscription,
    thread_subscription,
)


def on_a_silent_server(test: Callable[[int], Awaitable[None]]) -> None:
    """Run a test beside a server that accepts connections, and says nothing to anybody."""

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
    """One whose other side does not take part in closing it, as TLS wants it to."""

    def __init__(self) -> None:
        self._writer = Writer()
        self.sent: list[Any] = []

    async def disconnect(self, nowait: bool = False) -> None:
        if not nowait:
            await asyncio.Event().wait()

    async def send_command(self, *command: Any) -> None:
        self.sent.append(command)


def test_line_is_closed_without_the_other_side() -> None:
    connection = Connection()

    asyncio.run(asyncio.wait_for(TaskSubscription(connection).close(), 5))

    assert connection._writer.transport.aborted


def test_line_whose_closing_was_cancelled_before_it_began_is_ended_all_the_same() -> None:
    connection: Any = Connection()
    line = TaskSubscription(connection)

    async def test() -> None:
        closing = start(line.close(), line.abort)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(0)

    asyncio.run(test())

    assert connection._writer.transport.aborted
    assert asyncio.run(line.send("PING")) is None
    assert connection.sent == []


def test_command_on_a_closed_line_opens_no_other() -> None:
    async def test() -> list[Any]:
        connection = Connection()
        line = TaskSubscription(connection)
        await line.close()
        await line.send("PING")
        return connection.sent

    assert asyncio.run(test()) == []


def test_closing_a_line_ends_its_hearing() -> None:
    async def test(port: int) -> None:
        line = await task_subscription(redis.asyncio.Redis(port=port), b"key")
        hearing = asyncio.ensure_future(line.receive(lambda reply: None))
        await asyncio.sleep(0)

        await line.close()

        with pytest.raises(redis.ConnectionError):
            await hearing

    on_a_silent_server(test)


def test_a_line_that_broke_before_it_is_heard_tells_that() -> None:
    ours, theirs = socket.socketpair()

    class Opened:
        _sock = ours
        _parser = SimpleNamespace(parse_error=redis.ResponseError)

        def disconnect(self) -> None:
            ours.close()

    async def test() -> None:
        line = ThreadSubscription(Opened())
        theirs.close()
        await line.send("SUBSCRIBE", "a")  # it breaks here
        with pytest.raises(redis.ConnectionError):
            await line.receive(lambda reply: None)

    with ours, theirs:
        asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize(
    ("own_limit", "expected"), [(2.0, 2.0), (None, private_connection.PATIENCE)]
)
def test_to_connect_may_take_longer_than_a_reply(own_limit, expected) -> None:
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


def test_making_a_line_for_tasks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_connection, "PATIENCE", 0.05)

    async def test(port: int) -> None:
        client = redis.asyncio.Redis(port=port, password="any")  # noqa: S106
        with pytest.raises(TimedOut):
            await task_subscription(client, b"key")

    on_a_silent_server(test)


def test_making_a_line_for_threads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*arguments: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(private_connection, "PATIENCE", 0.05)
    monkeypatch.setattr(subscriptions, "in_thread", never)

    async def test(port: int) -> None:
        with pytest.raises(TimedOut):
            await thread_subscription(redis.Redis(port=port), b"key")

    on_a_silent_server(test)

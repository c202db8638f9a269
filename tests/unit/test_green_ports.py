"""What a greenlet that listens makes of what the server says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.transport.greenlets import GreenletSubscription


class LoopThread:
    """One where nobody else works."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield


class Connection:
    """One that reads what a test says, and is broken then."""

    _sock = object()

    def __init__(self, *replies: Any) -> None:
        self.replies = [*replies, redis.ConnectionError("closed")]
        self.is_open = True

    def can_read(self, timeout: float) -> bool:
        return True

    def read_response(self) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def disconnect(self) -> None:
        self.is_open = False


def heard(connection: Connection) -> list[Any]:
    """What is told until the connection breaks."""
    told: list[Any] = []
    loop_thread: Any = LoopThread()
    with pytest.raises(redis.ConnectionError, match="closed"):
        run(GreenletSubscription(connection, loop_thread).receive(told.append))
    return told


def test_a_refused_command_is_told_as_any_reply() -> None:
    refused = redis.exceptions.NoPermissionError("no permissions to run the 'info' command")
    connection = Connection(refused, [b"subscribe", b"channel", 1], None)

    told = heard(connection)

    assert told == [refused, [b"subscribe", b"channel", 1], None]
    assert not connection.is_open


def test_what_telling_raises_ends_the_hearing() -> None:
    connection = Connection([b"message"])
    loop_thread: Any = LoopThread()

    def refuse(reply: Any) -> None:
        raise redis.ResponseError("SUBSCRIBE is refused")

    with pytest.raises(redis.ResponseError, match="SUBSCRIBE"):
        run(GreenletSubscription(connection, loop_thread).receive(refuse))

    assert not connection.is_open

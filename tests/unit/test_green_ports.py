"""How a greenlet's subscription handles replies, error replies and a broken connection."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.transport.greenlets import WAIT, GreenletSubscription


class LoopThread:
    """A background thread without other work."""

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        yield


class Connection:
    """A connection with the given replies, which breaks after them."""

    _sock = object()

    def __init__(self, *replies: Any) -> None:
        self.replies = [*replies, redis.ConnectionError("closed")]
        self.is_open = True
        self.waits: list[float] = []

    def can_read(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return True

    def read_response(self) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def disconnect(self) -> None:
        self.is_open = False


def received(connection: Connection) -> list[Any]:
    """The replies until the connection breaks."""
    replies: list[Any] = []
    loop_thread: Any = LoopThread()
    with pytest.raises(redis.ConnectionError, match="closed"):
        run(GreenletSubscription(connection, loop_thread).receive(replies.append))
    return replies


def test_error_reply_is_received_like_any_reply() -> None:
    refused = redis.exceptions.NoPermissionError("no permissions to run the 'info' command")
    connection = Connection(refused, [b"subscribe", b"channel", 1], None)

    replies = received(connection)

    assert replies == [refused, [b"subscribe", b"channel", 1], None]
    assert not connection.is_open


def test_error_raised_for_a_reply_ends_the_receive() -> None:
    connection = Connection([b"message"])
    loop_thread: Any = LoopThread()

    def refuse(reply: Any) -> None:
        raise redis.ResponseError("SUBSCRIBE is refused")

    with pytest.raises(redis.ResponseError, match="SUBSCRIBE"):
        run(GreenletSubscription(connection, loop_thread).receive(refuse))

    assert not connection.is_open


@pytest.mark.parametrize("is_replaced", [True, False])
def test_waiting_for_input_stops_no_greenlets_where_select_is_native(
    monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    if is_replaced:
        monkeypatch.setattr(select, "select", lambda *arguments: ([], [], []))
    connection = Connection([b"message"])

    received(connection)

    assert set(connection.waits) == {WAIT if is_replaced else 0}

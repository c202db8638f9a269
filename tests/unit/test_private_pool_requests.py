"""Requests on private connections: which count as sent, and how long they may last."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
import redis
import redis.exceptions as client
from support.peers import Peers, ask
from support.signals import periodic_signals

from redis_lock_decorators._io import client_errors, timeouts
from redis_lock_decorators._io.transport import private_connection, private_pool, sockets
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._io.transport.sockets import BlockingSocket


@pytest.fixture(autouse=True, params=["kernel", "python"])
def timeouts_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        timeouts, "KERNEL_TIMEOUTS", timeouts.KERNEL_TIMEOUTS and request.param == "kernel"
    )


class Silent(redis.Connection):
    """A connection that sends nothing when it is opened."""

    def on_connect(self) -> None:
        pass

    def on_connect_check_health(self, check_health: bool = True) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        client.ConnectionError("Error 111 connecting to localhost:6379. Connection refused."),
        client.ConnectionError("Error -2 connecting to nowhere:6379. Name or service not known."),
        client.TimeoutError("Timeout connecting to server"),
        client.AuthenticationError("invalid username-password pair"),
        client.BusyLoadingError("Redis is loading the dataset in memory"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_nothing_counts_as_sent_if_no_connection_was_opened(error: BaseException) -> None:
    pool = Peers()
    pool.error = error

    with pytest.raises(type(error)) as caught:
        ask(PrivatePool(), pool)

    assert not client_errors.was_sent(caught.value)  # type: ignore[arg-type]


def test_request_is_not_sent_after_its_time_but_its_connection_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = PrivatePool()
    with Peers(b"+1\r\n") as pool:
        monkeypatch.setattr(private_pool, "monotonic", lambda: time.monotonic() + 60)
        with pytest.raises(client.TimeoutError) as caught:
            ask(connections, pool, seconds=30)
        monkeypatch.undo()

        assert not client_errors.was_sent(caught.value)
        assert ask(connections, pool) == b"1"
        assert len(pool.ends) == 1


def test_requests_have_as_long_as_opening_their_connection_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also the second one of an attempt, by which a script's text follows its digest."""
    began, waits = time.monotonic(), list[float]()
    moments = iter([began, began + 0.9])
    receive = BlockingSocket._recv_within

    def note(connection: BlockingSocket, seconds: float) -> bytes:
        waits.append(seconds)
        return receive(connection, 5)

    monkeypatch.setattr(private_pool, "monotonic", lambda: next(moments))
    monkeypatch.setattr(sockets, "monotonic", lambda: began + 1.3)
    monkeypatch.setattr(BlockingSocket, "_recv_within", note)
    connections = PrivatePool()
    with Peers(b"+1\r\n", b"+2\r\n", socket_timeout=60) as pool:
        for _ in range(2):
            connections.exchange(pool, ("PING",), began + 1)

    assert waits == [pytest.approx(0.5)] * 2


@pytest.mark.parametrize("reply", [b"", b"+half", b"what?\r\n"], ids=repr)
def test_request_without_a_whole_reply_counts_as_sent(reply: bytes) -> None:
    with Peers(reply, socket_timeout=0.05) as pool:
        with pytest.raises(client.RedisError) as caught:
            ask(PrivatePool(), pool)

        assert client_errors.is_unknown(caught.value)
        assert client_errors.was_sent(caught.value)


def test_request_that_failed_at_its_first_byte_counts_as_sent() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        connected = private_pool._usable(pool)
        pool.ends[0].close()

        assert connected is not None
        with pytest.raises(client.ConnectionError) as caught:
            connected.exchange(b"PING\r\n", 1, time.monotonic() + 60)

        assert client_errors.was_sent(caught.value)


def test_request_that_a_full_send_buffer_refused_counts_as_unsent() -> None:
    with Peers(b"+1\r\n", socket_timeout=0.05) as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        connected = private_pool._usable(pool)
        assert connected is not None
        filled = connected.connection._sock
        filled.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                filled.send(b"x" * 65536)
        filled.settimeout(None if timeouts.KERNEL_TIMEOUTS else 0.05)

        with pytest.raises(client.TimeoutError) as caught:
            connected.exchange(b"PING\r\n", 1, time.monotonic() + 60)

        assert not client_errors.was_sent(caught.value)


def test_partly_sent_request_counts_as_sent() -> None:
    with Peers(b"+1\r\n", socket_timeout=0.05) as pool:
        private_pool = PrivatePool()

        with pytest.raises(client.TimeoutError) as caught:
            private_pool.exchange(pool, ("ECHO", b"x" * 10_000_000), time.monotonic() + 60)

        assert client_errors.was_sent(caught.value)


@pytest.mark.parametrize(("size", "socket_timeout"), [(1, 0.3), (1, 60), (10_000_000, 0.3)])
def test_signals_do_not_prolong_a_wait(size: int, socket_timeout: float) -> None:
    with Peers(socket_timeout=socket_timeout) as pool, periodic_signals() as calls:  # noqa: SIM117
        with pytest.raises(client.TimeoutError):
            PrivatePool().exchange(pool, ("ECHO", b"x" * size), time.monotonic() + 0.5)

    assert calls


def test_wait_for_the_rest_of_a_reply_ends_with_the_callers_time() -> None:
    with Peers(b"$5\r\nab", socket_timeout=60) as pool:
        started = time.monotonic()

        with pytest.raises(client.TimeoutError):
            ask(PrivatePool(), pool, 0.05)

        assert time.monotonic() < started + 4


def test_time_left_for_opening_does_not_limit_later_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "KERNEL_TIMEOUTS", False)
    server = socket.create_server(("127.0.0.1", 0))
    pool = redis.ConnectionPool(
        host="127.0.0.1", port=server.getsockname()[1], protocol=2, socket_timeout=2
    )

    with server:
        connection = private_connection.opened(
            Silent, pool.connection_kwargs, time.monotonic() + 0.5
        )
        connected = BlockingSocket(connection)

        assert connection._sock.gettimeout() == 2
        connected.close()


def test_error_of_a_signal_handler_is_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        connected = private_pool._usable(pool)
        assert connected is not None

        class Interrupted:
            def send(self, data: bytes, flags: int) -> int:
                raise TimeoutError("the user's")

        monkeypatch.setattr(connected, "_sock", Interrupted())

        with pytest.raises(TimeoutError, match="the user's"):
            connected.exchange(b"PING\r\n", 1, time.monotonic() + 60)


class Late:
    """A socket; its first wait ends too late, as after a long signal handler."""

    def __init__(self, sock: Any, error: OSError) -> None:
        self._sock = sock
        self._errors = [error]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        if self._errors:
            raise self._errors.pop()
        data: bytes = self._sock.recv(size)
        return data


@pytest.mark.parametrize("seconds", [0.01, 60])
def test_late_end_of_a_wait_returns_what_has_arrived(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        connected = private_pool._idle.pop()
        checks: list[float] = []
        check = connected._readable

        def late(milliseconds: float) -> object:
            checks.append(milliseconds)
            return check(milliseconds) if len(checks) > 1 or not milliseconds else []

        error = (
            BlockingIOError(11, "again") if timeouts.KERNEL_TIMEOUTS else TimeoutError("timed out")
        )
        if not timeouts.KERNEL_TIMEOUTS:
            monkeypatch.setattr(connected, "_sock", Late(connected._sock, error))
        monkeypatch.setattr(connected, "_readable", late)
        pool.ends[0].sendall(b"+2\r\n")

        assert connected.exchange(b"PING\r\n", 1, time.monotonic() + seconds) == [b"2"]


def test_wait_without_a_reply_ends_with_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        connected = private_pool._idle.pop()
        error = (
            BlockingIOError(11, "again") if timeouts.KERNEL_TIMEOUTS else TimeoutError("timed out")
        )
        monkeypatch.setattr(connected, "_sock", Late(connected._sock, error))

        with pytest.raises(client.TimeoutError):
            connected.exchange(b"PING\r\n", 1, time.monotonic() + 60)

"""Private connections: which are reused, which are checked first, and what counts as sent."""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.exceptions as client
from support.peers import MOVES, Peers, name_of_move

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io import client_errors, timeouts
from redis_lock_decorators._io.transport import private_connection, sockets
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._io.transport.sockets import BlockingSocket

READONLY = b"-READONLY You can't write against a read only replica.\r\n"
IN_SCRIPT = b"-ERR Error running script (call to f_0): @user_script:1: -READONLY no\r\n"


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


def ask(private_pool: PrivatePool, pool: Peers, seconds: float = 60) -> Any:
    """Send a request that starts an acquisition; returns its reply."""
    return private_pool.exchange(pool, ("SET", "lock", "1"), time.monotonic() + seconds)


def test_usable_connection_is_reused() -> None:
    with Peers(b"+1\r\n", b"+2\r\n", b"-ERR wrong\r\n", b"+4\r\n") as pool:
        private_pool = PrivatePool()

        assert [ask(private_pool, pool), ask(private_pool, pool)] == [b"1", b"2"]
        with pytest.raises(client.ResponseError):
            ask(private_pool, pool)
        assert ask(private_pool, pool) == b"4"

        assert len(pool.ends) == 1


@pytest.mark.parametrize(
    "reply",
    [
        READONLY,
        IN_SCRIPT,
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-NOREPLICAS Not enough good replicas to write.\r\n",
    ],
)
def test_connection_to_a_former_master_is_not_reused(reply: bytes) -> None:
    with Peers(reply, b"+from the old one\r\n") as pool:
        private_pool = PrivatePool()

        with pytest.raises(client.RedisError):
            ask(private_pool, pool)
        pool.script = [b"+from the new one\r\n"]

        assert ask(private_pool, pool) == b"from the new one"


def test_idle_connections_to_a_former_master_are_dropped() -> None:
    with Peers(b"+1\r\n", b"+2\r\n") as pool:
        private_pool, until = PrivatePool(), time.monotonic() + 60
        ask(private_pool, pool)
        first = private_pool._usable(pool)  # as if another thread was using it
        pool.script = [b"+1\r\n", READONLY]
        ask(private_pool, pool)
        private_pool._idle.insert(0, first)  # type: ignore[arg-type]

        with pytest.raises(client.ReadOnlyError):
            ask(private_pool, pool)
        pool.script = [b"+new\r\n"]

        assert private_pool.exchange(pool, ("PING",), until) == b"new"


def test_connection_that_the_server_closed_is_not_used() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        pool.ends[0].close()
        pool.script = [b"+2\r\n"]

        assert ask(private_pool, pool) == b"2"


def test_reply_without_a_request_is_not_read_as_the_next_one() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        pool.ends[0].sendall(b"+late\r\n")
        pool.script = [b"+2\r\n"]

        assert ask(private_pool, pool) == b"2"


def test_surplus_reply_is_not_read_as_the_next_one() -> None:
    with Peers(b"+1\r\n+late\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        pool.script = [b"+2\r\n"]

        assert ask(private_pool, pool) == b"2"


def test_pool_collected_in_a_reference_cycle_closes_its_connection() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        private_pool._idle.append(private_pool)  # type: ignore[arg-type]

        del private_pool
        gc.collect()

        pool.ends[0].settimeout(10)
        assert pool.ends[0].recv(1) == b""


def test_sentinel_pool_with_a_new_master_is_followed() -> None:
    with Peers(b"+old\r\n", b"+old\r\n", host="old") as pool:
        private_pool = PrivatePool()
        pool.master_address = ("old", 6379)  # type: ignore[attr-defined]
        assert ask(private_pool, pool) == b"old"

        pool.master_address = ("new", 6379)  # type: ignore[attr-defined]
        pool.connection_kwargs, pool.script = {"host": "new"}, [b"+new\r\n"]

        assert ask(private_pool, pool) == b"new"


@pytest.mark.parametrize("change", MOVES, ids=name_of_move)
def test_pool_that_connects_elsewhere_is_followed(change: Callable[[Peers], None]) -> None:
    with Peers(b"+old\r\n", b"+old\r\n", b"+old\r\n", host="old") as pool:
        private_pool = PrivatePool()
        assert [ask(private_pool, pool), ask(private_pool, pool)] == [b"old", b"old"]

        change(pool)
        pool.script = [b"+new\r\n", b"+new\r\n"]

        assert [ask(private_pool, pool), ask(private_pool, pool)] == [b"new", b"new"]
        assert len(pool.ends) == 2


def test_replaced_pool_is_followed() -> None:
    with Peers(b"+old\r\n", b"+old\r\n") as pool, Peers(b"+new\r\n") as other:
        private_pool = PrivatePool()
        assert ask(private_pool, pool) == b"old"

        assert ask(private_pool, other) == b"new"


def test_pool_that_changes_while_a_connection_opens_is_followed() -> None:
    with Peers(b"+old\r\n", b"+old\r\n") as pool:
        usual = pool.opened

        def opened() -> socket.socket:
            found = usual()
            pool.disconnect()
            return found

        pool.opened = opened  # type: ignore[method-assign]
        private_pool = PrivatePool()
        assert ask(private_pool, pool) == b"old"  # this request was under way
        pool.opened, pool.script = usual, [b"+new\r\n"]  # type: ignore[method-assign]

        assert ask(private_pool, pool) == b"new"


# Clients that are closed


def is_closed(end: socket.socket) -> bool:
    """Whether the package has closed its end of a connection."""
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("close", MOVES[:3], ids=name_of_move)
def test_idle_connections_are_closed_with_the_client(close: Callable[[Peers], None]) -> None:
    with Peers(b"+1\r\n") as pool:
        private_pools = [PrivatePool(), PrivatePool()]  # of two clients with one pool
        ask(private_pools[0], pool)
        pool.script = [b"+2\r\n"]
        ask(private_pools[1], pool)

        close(pool)

        assert list(map(is_closed, pool.ends)) == [True, True]


def test_connection_in_use_is_closed_after_its_exchange_with_a_closed_client() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool, usual = PrivatePool(), BlockingSocket.exchange

        def closing(self: Any, *request: Any) -> list[Any]:
            replies = usual(self, *request)
            pool.disconnect()  # another thread closes the client
            return replies

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockingSocket, "exchange", closing)
            assert ask(private_pool, pool) == b"1"

        assert is_closed(pool.ends[0])


def test_closed_client_keeps_no_connection_after_a_release() -> None:
    with Peers(b"+held\r\n") as pool:
        private_pool, until = PrivatePool(), time.monotonic() + 60
        acquire, release = ("SET", "lock", "1"), ("DEL", "lock")
        assert private_pool.exchange(pool, acquire, until) == b"held"
        pool.disconnect()

        pool.script = [b"+released\r\n"]
        assert private_pool.exchange(pool, release, until) == b"released"
        assert is_closed(pool.ends[1])

        pool.script = [b"+held\r\n", b"+released\r\n"]
        assert private_pool.exchange_all(pool, [acquire], until) == [b"held"]
        assert private_pool.exchange(pool, release, until) == b"released"
        assert not is_closed(pool.ends[2])


def test_pool_that_was_replaced_may_be_closed() -> None:
    with Peers(b"+1\r\n") as pool, Peers(b"+2\r\n") as other:
        private_pool, release, until = PrivatePool(), ("DEL", "lock"), time.monotonic() + 60
        ask(private_pool, pool)
        pool.disconnect()  # before the other pool is used

        assert private_pool.exchange(other, release, until) == b"2"
        pool.disconnect()
        assert not is_closed(other.ends[0])

        other.disconnect()
        assert is_closed(other.ends[0])
        other.script = [b"+3\r\n"]
        assert private_pool.exchange(other, release, until) == b"3"
        assert is_closed(other.ends[1])


def test_pool_does_not_keep_closed_clients_alive() -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        watch = pool.disconnect.lock_watch  # type: ignore[attr-defined]
        assert len(watch._followers) == 1

        del private_pool
        gc.collect()

        assert len(watch._followers) == 0
        pool.disconnect()


def test_forked_process_leaves_the_connections_of_its_parent_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Peers(b"+1\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        monkeypatch.setattr(fork, "process_id", -1)

        pool.reset()

        assert not is_closed(pool.ends[0])


# Requests that may have reached the server


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
            def send(self, data: bytes) -> int:
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
        if seconds > 1 or not timeouts.KERNEL_TIMEOUTS:
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


def test_private_connections_return_bytes_and_send_no_pings() -> None:
    with Peers(b"$2\r\n\xff\xfe\r\n", decode_responses=True, health_check_interval=1) as pool:
        private_pool = PrivatePool()

        assert ask(private_pool, pool) == b"\xff\xfe"

        [connected] = private_pool._idle
        assert connected.connection.others["decode_responses"] is True  # for hooks
        assert connected.connection.health_check_interval == 0


@pytest.mark.parametrize("options", [{}, {"protocol": 3}, {"protocol": "3"}], ids=str)
@pytest.mark.parametrize("package", ["redis", "redis.asyncio", "valkey", "valkey.asyncio"])
def test_private_connections_are_plain_whatever_the_clients_options(
    package: str, options: dict[str, Any]
) -> None:
    kind = pytest.importorskip(package).Connection
    if options and not hasattr(kind(), "protocol"):
        pytest.skip("this client knows one protocol")
    parameters = {"decode_responses": True, "health_check_interval": 0.2, "db": 3, **options}

    connection = private_connection.made(kind, parameters)

    assert (connection.db, connection.health_check_interval) == (3, 0)
    assert connection.encoder.decode_responses  # while hooks of the program open it
    assert str(getattr(connection, "protocol", 2)) == "2"


def test_idle_connection_is_checked_without_a_replaced_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replaced one sets a timer, whose exception may be raised after an interruption."""

    def green(*arguments: object) -> object:
        raise AssertionError("it used a replaced function")

    for name in ("poll", "select"):
        if hasattr(select, "poll"):
            monkeypatch.setattr(select, name, green)
    sockets._native_poll.cache_clear()
    with Peers(b"+1\r\n", b"+2\r\n") as pool:
        private_pool = PrivatePool()
        ask(private_pool, pool)
        (connected,) = private_pool._idle

        assert not connected.is_stale()
        pool.ends[0].sendall(b"+late\r\n")
        assert connected.is_stale()
    sockets._native_poll.cache_clear()

"""Private connections: which are reused or checked first, and when they are closed."""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis.exceptions as client
from support.peers import MOVES, Peers, ask, name_of_move

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io import timeouts
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


# The options of private connections


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

"""The fault proxy drops, delays and records messages as a test requests."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from support.proxy import FaultProxy
from support.waiting import until

from redis_lock_decorators.testing import LocalServer

PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def direct(server: LocalServer) -> Iterator[redis.Redis]:
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def proxy(server: LocalServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.host, server.port) as proxy:
        yield proxy


def client_of(proxy: FaultProxy, **options: Any) -> redis.Redis:
    return proxy.client(retry=Retry(NoBackoff(), 0), decode_responses=True, **options)


def is_incr(command: list[bytes]) -> bool:
    return command[0] == b"INCRBY"


@PROTOCOLS
def test_untouched_commands_pass(proxy: FaultProxy, protocol: int) -> None:
    with client_of(proxy, protocol=protocol) as client:
        client.hset("hash", mapping={"a": "1", "b": "2\r\n"})

        assert client.hgetall("hash") == {"a": "1", "b": "2\r\n"}


def test_large_values_pass(proxy: FaultProxy) -> None:
    value = "x\r\n" * 300_000

    with client_of(proxy) as client:
        client.set("large", value)

        assert client.get("large") == value


@PROTOCOLS
def test_command_whose_reply_is_dropped_was_run(
    proxy: FaultProxy, direct: redis.Redis, protocol: int
) -> None:
    proxy.drop_reply(is_incr)

    with client_of(proxy, protocol=protocol) as client:
        with pytest.raises(redis.ConnectionError):
            client.incr("counter")

        assert direct.get("counter") == "1"
        assert client.incr("counter") == 2


def test_dropped_reply_cuts_the_connection(proxy: FaultProxy) -> None:
    proxy.drop_reply(is_incr)

    with socket.create_connection((proxy.host, proxy.port), 5) as raw:
        raw.sendall(b"INCRBY counter 1\r\n")

        with pytest.raises(ConnectionResetError):
            raw.recv(100)


def test_command_whose_request_is_dropped_was_not_run(
    proxy: FaultProxy, direct: redis.Redis
) -> None:
    proxy.drop_request(is_incr)

    with client_of(proxy) as client:
        with pytest.raises(redis.ConnectionError):
            client.incr("counter")

        assert direct.get("counter") is None
        assert client.incr("counter") == 1


@pytest.mark.usefixtures("direct")
def test_fault_happens_as_often_as_asked(proxy: FaultProxy) -> None:
    proxy.drop_reply(is_incr, times=2)

    with client_of(proxy) as client:
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.incr("counter")

        assert client.incr("counter") == 3


def test_transaction_whose_last_reply_is_dropped_was_run(
    proxy: FaultProxy, direct: redis.Redis
) -> None:
    proxy.drop_reply(lambda command: command == [b"EXEC"])

    with client_of(proxy) as client, pytest.raises(redis.ConnectionError):
        client.pipeline().incr("counter").incr("counter").execute()

    assert direct.get("counter") == "2"


def test_earlier_replies_of_a_packet_arrive(proxy: FaultProxy) -> None:
    proxy.drop_reply(lambda command: command[-1] == b"second")

    with socket.create_connection((proxy.host, proxy.port), 5) as raw:
        raw.sendall(b"ECHO first\r\nECHO second\r\nECHO third\r\n")

        assert raw.makefile("rb").read(11) == b"$5\r\nfirst\r\n"
        with pytest.raises(ConnectionResetError):
            raw.recv(100)


def test_delay_comes_before_each_reply(proxy: FaultProxy) -> None:
    with client_of(proxy) as client:
        client.ping()
        proxy.delay = 0.1
        began = time.monotonic()

        client.ping()

    assert 0.1 <= time.monotonic() - began < 1


def test_black_hole_swallows_commands(proxy: FaultProxy, direct: redis.Redis) -> None:
    with client_of(proxy, socket_timeout=0.1) as client:
        client.set("key", "before")
        proxy.black_hole = True

        with pytest.raises(redis.TimeoutError):
            client.set("key", "inside")

        assert direct.get("key") == "before"
        assert proxy.commands[-1][:3] == [b"SET", b"key", b"inside"]


def test_black_hole_swallows_replies(proxy: FaultProxy, direct: redis.Redis) -> None:
    with client_of(proxy, socket_timeout=0.2) as client:
        client.ping()
        proxy.delay = 0.05
        entering = threading.Timer(0.01, setattr, (proxy, "black_hole", True))
        entering.start()

        with pytest.raises(redis.TimeoutError):
            client.incr("counter")

    entering.join()
    assert direct.get("counter") == "1"


def test_black_hole_can_heal(proxy: FaultProxy) -> None:
    proxy.black_hole = True

    with client_of(proxy, socket_timeout=0.1) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        proxy.black_hole = False

        assert client.ping()


def test_black_hole_accepts_clients_of_a_dead_server() -> None:
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        proxy.black_hole = True
        server.kill()

        with client_of(proxy, socket_timeout=0.1) as client, pytest.raises(redis.TimeoutError):
            client.ping()


def test_black_hole_hides_the_death_of_the_server() -> None:
    with (
        LocalServer() as server,
        FaultProxy(server.host, server.port) as proxy,
        client_of(proxy, socket_timeout=0.1) as client,
    ):
        client.ping()
        proxy.black_hole = True
        server.kill()

        with pytest.raises(redis.TimeoutError):
            client.ping()


def test_dead_server_cuts_the_client() -> None:
    with (
        LocalServer() as server,
        FaultProxy(server.host, server.port) as proxy,
        client_of(proxy) as client,
    ):
        client.ping()
        server.kill()

        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.restart()

        assert client.ping()


def test_commands_are_recorded_until_cleared(proxy: FaultProxy) -> None:
    with client_of(proxy) as client:
        client.set("key", "value")
        assert proxy.commands[-1] == [b"SET", b"key", b"value"]
        proxy.clear()

        client.pipeline(transaction=False).get("a").get("b").execute()

    assert proxy.commands == [[b"GET", b"a"], [b"GET", b"b"]]


@PROTOCOLS
def test_subscriptions_leave_the_count_of_replies_right(
    proxy: FaultProxy, direct: redis.Redis, protocol: int
) -> None:
    proxy.drop_reply(lambda command: command[0] == b"PING", times=1)

    with client_of(proxy, protocol=protocol) as client, client.pubsub() as messages:
        messages.subscribe("one", "two")
        kinds = [next_kind(messages), next_kind(messages)]
        direct.publish("two", "hello")
        kinds.append(next_kind(messages))
        messages.ping()
        with pytest.raises(redis.ConnectionError):
            messages.connection.read_response()

    assert kinds == ["subscribe", "subscribe", "message"]


def next_kind(messages: Any) -> str:
    message = messages.get_message(timeout=5)
    return str(message["type"])


def test_nothing_is_left_after_the_end(server: LocalServer) -> None:
    with FaultProxy(server.host, server.port) as proxy, contextlib.ExitStack() as stack:
        idle, waiting = (
            stack.enter_context(socket.create_connection((proxy.host, proxy.port), 5))
            for _ in range(2)
        )
        proxy.delay = 60
        waiting.sendall(b"PING\r\n")
        until(lambda: proxy.commands == [[b"PING"]])
        kept = stack.pop_all()

    with kept:
        assert idle.recv(100) == b""
        assert waiting.recv(100) in {b"", b"+PONG\r\n"}
    assert "fault-proxy" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port))

"""``redis-lock doctor`` behind proxies and networks that change or delay replies."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.cli import ran
from support.proxy import Command, FaultProxy

from redis_lock_decorators.diagnosis import Severity, diagnose

ANY = "any"  # of a user without a password


def found(client: Any, **options: Any) -> list[tuple[Severity, str]]:
    """The severity and title of each finding, without hints."""
    rows = diagnose(client, **options)
    return [(row.severity, row.title) for row in rows if row.severity is not Severity.HINT]


def test_nothing_is_said_of_a_proxy_that_changes_nothing(proxy: FaultProxy) -> None:
    assert found(proxy.client()) == []


def test_hidden_receivers_of_messages_are_found(proxy: FaultProxy) -> None:
    def hide(command: Command, reply: bytes) -> bytes:
        return b":0\r\n" if command[:1] == [b"PUBLISH"] else reply

    proxy.rewrite = hide
    title = "The receivers of messages are not counted: PUBLISH reports 0"
    assert found(proxy.client()) == [(Severity.WAITING, title)]
    assert ran("doctor", url=f"redis://127.0.0.1:{proxy.port}").code == 1


def test_hidden_subscribers_are_found(proxy: FaultProxy) -> None:
    def hide(command: Command, reply: bytes) -> bytes:
        return reply.replace(b":1\r\n", b":0\r\n") if command[:1] == [b"PUBSUB"] else reply

    proxy.rewrite = hide
    title = "The receivers of messages are not counted: PUBSUB NUMSUB reports 0"
    assert found(proxy.client()) == [(Severity.WAITING, title)]


def test_messages_that_are_not_delivered_are_found(proxy: FaultProxy) -> None:
    proxy.rewrite = lambda command, reply: reply if b"\r\nmessage\r\n" not in reply else b""
    client = proxy.client(socket_timeout=0.3)

    assert found(client) == [(Severity.WAITING, "Messages are not delivered")]


def test_connection_that_is_cut_is_found(proxy: FaultProxy) -> None:
    proxy.drop_request(lambda command: command[0] == b"ZPOPMIN", times=100)

    assert found(proxy.client()) == [(Severity.FAILURE, "A server cannot be used")]


def test_proxy_without_subscriptions_is_found(proxy: FaultProxy) -> None:
    proxy.drop_request(lambda command: command[0] == b"SUBSCRIBE", times=100)

    assert found(proxy.client()) == [(Severity.WAITING, "The server lacks SUBSCRIBE")]


def test_scripts_that_are_refused_in_part_are_found(proxy: FaultProxy) -> None:
    """A server may refuse in a script what it allows outside."""

    def refuse(command: Command, reply: bytes) -> bytes:
        is_lock = command[0] in (b"EVAL", b"EVALSHA") and len(command) > 6
        return b"-ERR this command is not allowed from script\r\n" if is_lock else reply

    proxy.rewrite = lambda command, reply: refuse(command, reply) if command else reply
    assert found(proxy.client()) == [(Severity.FAILURE, "A lock cannot be used")]


def test_fences_that_do_not_grow_are_found(proxy: FaultProxy) -> None:
    def same(command: Command, reply: bytes) -> bytes:
        return re.sub(rb":\d{16}\r", b":1700000000000000\r", reply)

    proxy.rewrite = same
    client = proxy.client()

    title = "The fence does not grow: 1700000000000000, then 1700000000000000"
    assert found(client, uses=["fencing"]) == [(Severity.FAILURE, title)]
    proxy.rewrite = None
    assert found(client, uses=["fencing"]) == []


def test_long_round_trips_are_compared_with_the_lease(proxy: FaultProxy) -> None:
    proxy.delay = 0.02
    titles = [title for _, title in found(proxy.client(socket_timeout=1), expire=0.15)]

    assert any(title.startswith("A round trip takes ") for title in titles)


UNKNOWN = (Severity.UNCHECKED, "The server and its user")


class Wrapper:
    """A client of which only these two methods are known."""

    def __init__(self, client: Any) -> None:
        self.execute_command = client.execute_command
        self.pipeline = client.pipeline


def test_lock_of_a_wrapped_client_is_tried(proxy: FaultProxy) -> None:
    client: Any = Wrapper(proxy.client())

    def refuse(command: Command, reply: bytes) -> bytes:
        return b"-ERR no\r\n" if command[:1] in ([b"EVAL"], [b"EVALSHA"]) else reply

    proxy.rewrite = refuse
    assert found(client) == [(Severity.FAILURE, "A lock cannot be used"), UNKNOWN]


@pytest.mark.slow
def test_client_whose_waiters_poll_is_found(server: Any) -> None:
    joined = (Severity.WAITING, "A waiter did not join the queue")

    assert found(Wrapper(server.client())) == [joined, UNKNOWN]


def test_client_of_valkey_is_known(server: Any, direct: Any) -> None:
    valkey = pytest.importorskip("valkey")
    client = valkey.Valkey(host=server.host, port=server.port)
    assert found(client) == []

    direct.execute_command("ACL", "SETUSER", "v", "on", "nopass", "~*", "&*", "+@all", "-zpopmin")
    client = valkey.Valkey(host=server.host, port=server.port, username="v", password=ANY)
    assert found(client) == [(Severity.WAITING, "The user must not run ZPOPMIN")]
    direct.execute_command("ACL", "DELUSER", "v")


@pytest.mark.parametrize("decoded", [True, False])
def test_replies_may_be_decoded(server: Any, decoded: bool) -> None:
    assert found(server.client(decode_responses=decoded)) == []

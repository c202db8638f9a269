"""Subscriptions of blocking clients on an event loop."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import redis.exceptions as client
from support.background_loops import on_a_loop, received
from support.peers import Peers

from redis_lock_decorators._io.transport.subscriptions import ThreadSubscription, pool_check


def subscription_of(pool: Peers) -> ThreadSubscription:
    connection: Any = pool.connection_class(socket_timeout=5)
    connection.connect()
    return ThreadSubscription(connection)


@on_a_loop
async def test_subscription_ends_when_the_pool_leads_elsewhere() -> None:
    with Peers() as pool:
        client, replies = SimpleNamespace(connection_pool=pool), []
        follows_pool = pool_check(client)
        connection: Any = pool.connection_class(socket_timeout=5)
        connection.connect()
        subscription = ThreadSubscription(connection, follows_pool)
        receiving = asyncio.ensure_future(subscription.receive(replies.append))
        await subscription.send("PING")
        assert not receiving.done()

        pool.disconnect()
        await subscription.send("PING")

        await receiving
        assert await received(pool.ends[0]) == b"*1\r\n$4\r\nPING\r\n"


@on_a_loop
async def test_partial_message_delays_no_command() -> None:
    with Peers() as pool:
        subscription, messages = subscription_of(pool), asyncio.Queue[list[Any]]()
        receiving = asyncio.ensure_future(subscription.receive(messages.put_nowait))
        await asyncio.sleep(0)

        pool.ends[0].sendall(b"*1\r\n$5\r\nfirst\r\n*1\r\n$6\r\nsec")
        assert await messages.get() == [b"first"]
        await subscription.send("PING")
        assert await received(pool.ends[0]) == b"*1\r\n$4\r\nPING\r\n"
        pool.ends[0].sendall(b"ond\r\n")

        assert await messages.get() == [b"second"]
        await subscription.close()
        await receiving


@pytest.mark.parametrize("reply", [b"", b"-NOPERM no\r\n", b"what?\r\n"], ids=repr)
def test_broken_subscription_reports_the_cause(reply: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            subscription = subscription_of(pool)
            pool.ends[0].sendall(reply)
            pool.ends[0].shutdown(socket.SHUT_RDWR)

            with pytest.raises(client.RedisError):
                await subscription.receive(lambda message: None)

            await subscription.close()

    test()

"""Our own connections of blocking clients, on a real server."""

from __future__ import annotations

import socket
import time

import pytest
import redis

from redis_lock_decorators._io import timeouts
from redis_lock_decorators._io.transport.private_pool import PrivatePool, connected


class Cooperative(socket.socket):
    """A socket as an event loop such as gevent's puts in place of Python's."""


class OnCooperativeSockets(redis.Connection):
    def _connect(self):
        plain = super()._connect()
        limit = plain.gettimeout()
        other = Cooperative(plain.family, plain.type, plain.proto, plain.detach())
        other.settimeout(limit)
        return other


@pytest.fixture(params=["kernel", "python"])
def keeper_of_time(request, monkeypatch):
    monkeypatch.setattr(timeouts, "KNOWN", timeouts.KNOWN and request.param == "kernel")
    return request.param


@pytest.mark.parametrize("decode", [True, False])
def test_the_clients_time_out_ends_the_wait_for_a_reply(server, name, keeper_of_time, decode):
    client = server.client(socket_timeout=0.1, decode_responses=decode)
    private_pool, until = PrivatePool(), time.monotonic() + 60

    with pytest.raises(redis.exceptions.TimeoutError):
        private_pool.exchange(client.connection_pool, ("BLPOP", f"{name}:nothing", 0), until)

    assert time.monotonic() < until - 30
    assert private_pool.exchange(client.connection_pool, ("EXISTS", name), until) == 0


def test_a_time_out_is_kept_by_one_of_the_two(server, keeper_of_time):
    pool = server.client(socket_timeout=2.5).connection_pool
    wire = connected(pool, time.monotonic() + 60)
    try:
        kept = wire.connection._sock.gettimeout()
        assert kept == (None if timeouts.KNOWN else 2.5)
    finally:
        wire.close()


def test_sockets_of_another_kind_keep_their_own_time_outs(server, name):
    client = server.client(socket_timeout=0.1)
    pool = redis.ConnectionPool(
        connection_class=OnCooperativeSockets, **client.connection_pool.connection_kwargs
    )
    until = time.monotonic() + 60
    wire = connected(pool, until)
    assert wire.connection._sock.gettimeout() == 0.1
    wire.close()

    with pytest.raises(redis.exceptions.TimeoutError):
        PrivatePool().exchange(pool, ("BLPOP", f"{name}:nothing", 0), until)

"""Private connections of blocking clients, on a real server."""

from __future__ import annotations

import socket
import time

import pytest
import redis

from redis_lock_decorators._io import timeouts
from redis_lock_decorators._io.transport.private_pool import PrivatePool, connected


class Cooperative(socket.socket):
    """A socket like those by which gevent replaces Python's."""


class OnCooperativeSockets(redis.Connection):
    def _connect(self):
        plain = super()._connect()
        limit = plain.gettimeout()
        other = Cooperative(plain.family, plain.type, plain.proto, plain.detach())
        other.settimeout(limit)
        return other


@pytest.fixture(params=["kernel", "python"])
def timeouts_by(request, monkeypatch):
    monkeypatch.setattr(
        timeouts, "KERNEL_TIMEOUTS", timeouts.KERNEL_TIMEOUTS and request.param == "kernel"
    )
    return request.param


@pytest.mark.parametrize("decode", [True, False])
def test_client_timeout_ends_the_wait_for_a_reply(server, name, timeouts_by, decode):
    client = server.client(socket_timeout=0.1, decode_responses=decode)
    private_pool, until = PrivatePool(), time.monotonic() + 60

    with pytest.raises(redis.exceptions.TimeoutError):
        private_pool.exchange(client.connection_pool, ("BLPOP", f"{name}:nothing", 0), until)

    assert time.monotonic() < until - 30
    assert private_pool.exchange(client.connection_pool, ("EXISTS", name), until) == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_new_connection_that_fails_leaves_the_idle_ones(server, name, is_new):
    pool = server.client(socket_timeout=0.1).connection_pool
    private_pool, until = PrivatePool(), time.monotonic() + 60
    sockets = [private_pool.take(pool, until) for _ in range(2)]
    if not is_new:
        private_pool.keep(sockets.pop())

    with pytest.raises(redis.exceptions.TimeoutError):
        private_pool.exchange(
            pool, ("BLPOP", f"{name}:nothing", 0), until, keep(private_pool, sockets)
        )

    assert private_pool.has_idle is is_new
    private_pool.drop()


def keep(private_pool, sockets):
    """A function that gives connections back, before a request is sent over another one."""
    return lambda: [private_pool.keep(socket) for socket in sockets]


def test_timeout_is_enforced_by_the_kernel_or_by_python(server, timeouts_by):
    pool = server.client(socket_timeout=2.5).connection_pool
    opened = connected(pool, time.monotonic() + 60)
    try:
        kept = opened.connection._sock.gettimeout()
        assert kept == (None if timeouts.KERNEL_TIMEOUTS else 2.5)
    finally:
        opened.close()


def test_other_kinds_of_sockets_keep_their_own_timeouts(server, name):
    client = server.client(socket_timeout=0.1)
    pool = redis.ConnectionPool(
        connection_class=OnCooperativeSockets, **client.connection_pool.connection_kwargs
    )
    until = time.monotonic() + 60
    opened = connected(pool, until)
    assert opened.connection._sock.gettimeout() == 0.1
    opened.close()

    with pytest.raises(redis.exceptions.TimeoutError):
        PrivatePool().exchange(pool, ("BLPOP", f"{name}:nothing", 0), until)

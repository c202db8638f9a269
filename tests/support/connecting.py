"""Clients made from a description that can be passed to another process."""

from __future__ import annotations

import pathlib
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel

from redis_lock_decorators.testing import LocalCluster, LocalSentinel

HOST = "127.0.0.1"
#: Parts of redis-py for each front.
MODULES: dict[str, Any] = {"blocking": redis, "asyncio": redis.asyncio}


def to_server(port: int) -> dict[str, Any]:
    """One address, whatever server is behind it."""
    return {"kind": "server", "port": port}


def to_cluster(cluster: LocalCluster) -> dict[str, Any]:
    return {"kind": "cluster", "ports": cluster.ports}


def to_sentinels(sentinels: LocalSentinel) -> dict[str, Any]:
    found = [list(place) for place in sentinels.sentinels]
    return {"kind": "sentinel", "sentinels": found, "service": sentinels.service_name}


def to_port_in(path: pathlib.Path) -> dict[str, Any]:
    """The port is read from a file whenever a connection is opened, as a DNS name is resolved."""
    return {"kind": "file", "path": str(path)}


def connect(connection: dict[str, Any], front: str) -> Any:
    """A new client, "blocking" or "asyncio"."""
    return globals()[f"_{connection['kind']}"](connection, MODULES[front])


def _server(connection: dict[str, Any], module: Any) -> Any:
    return module.Redis(host=HOST, port=connection["port"])


def _cluster(connection: dict[str, Any], module: Any) -> Any:
    nodes = [module.cluster.ClusterNode(HOST, port) for port in connection["ports"]]
    return module.cluster.RedisCluster(startup_nodes=nodes)


def _sentinel(connection: dict[str, Any], module: Any) -> Any:
    places = [tuple(place) for place in connection["sentinels"]]
    watch = module.sentinel.Sentinel(places, sentinel_kwargs={"socket_timeout": 1})
    return watch.master_for(connection["service"])


def _file(connection: dict[str, Any], module: Any) -> Any:
    path = pathlib.Path(connection["path"])
    answers = Answers(path) if module is redis else AsyncAnswers(path)
    return module.Redis(connection_pool=module.sentinel.SentinelConnectionPool("master", answers))


class Answers:
    """Returns the address of the master, as Sentinels do."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def discover_master(self, service: str) -> tuple[str, int]:
        return HOST, int(self._path.read_text())


class AsyncAnswers(Answers):
    """The same for asyncio."""

    async def discover_master(self, service: str) -> tuple[str, int]:  # type: ignore[override]
        return super().discover_master(service)

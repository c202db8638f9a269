"""A real local Sentinel set."""

import os
from typing import Any

import redis
import redis.sentinel

from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.ports import HOST, free_ports
from redis_lock_decorators.testing.sets import Launcher, LocalSet, launch

SERVICE = "mymaster"
FAILOVER_TIMEOUT_MILLISECONDS = 3000
# The first sync must not wait five seconds for more replicas to join it.
SYNC_AT_ONCE = ("--repl-diskless-sync-delay", "0")


class LocalSentinel(LocalSet):
    """A master named "mymaster", its replicas, and the Sentinels that monitor them.

    `replicas` and `sentinels` are numbers; more than half of the Sentinels must
    agree on a failover. `binary` is the server program; None means that of
    `find_server()`. A server without a reply for `down_after` seconds counts as down:
    with less than a second a failover is quick, but on a busy machine another one may
    follow, with two masters for a while.
    """

    def __init__(
        self,
        replicas: int = 1,
        sentinels: int = 3,
        binary: str | os.PathLike[str] | None = None,
        down_after: float = 0.5,
    ) -> None:
        super().__init__(binary)
        self._replicas = replicas
        self._sentinels = sentinels
        self._down_after = down_after

    @property
    def service_name(self) -> str:
        """The Sentinels' name of the master."""
        return SERVICE

    @property
    def master(self) -> Node:
        """The server that was the master at the start."""
        return self.nodes[0]

    @property
    def replicas(self) -> tuple[Node, ...]:
        """The servers that were replicas at the start."""
        return self.nodes[1 : 1 + self._replicas]

    @property
    def sentinel_nodes(self) -> tuple[Node, ...]:
        """The Sentinels."""
        return self.nodes[1 + self._replicas :]

    @property
    def sentinels(self) -> list[tuple[str, int]]:
        """The host and port of each Sentinel, the argument of `redis.sentinel.Sentinel`."""
        return [(node.host, node.port) for node in self.sentinel_nodes]

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client of the current master with these options."""
        # Any, because redis-py has no types here.
        watch: Any = redis.sentinel.Sentinel
        watched = watch(self.sentinels, sentinel_kwargs={"socket_timeout": 1})
        client: redis.Redis = watched.master_for(SERVICE, **options)
        return client

    def _arrange(self, launcher: Launcher) -> tuple[Node, ...]:
        first, *others = free_ports(1 + self._replicas + self._sentinels)
        master = launcher.server("master", first, *SYNC_AT_ONCE)
        launch(master)
        # The replicas start first: a Sentinel asks for them immediately, then every ten seconds.
        replicas = _launch_replicas(launcher, master, others[: self._replicas])
        sentinels = self._launch_sentinels(launcher, master, others[self._replicas :])
        _wait_until_watched(sentinels, f"slaves={self._replicas},sentinels={self._sentinels}")
        return (master, *replicas, *sentinels)

    def _launch_sentinels(
        self, launcher: Launcher, master: Node, ports: list[int]
    ) -> tuple[Node, ...]:
        milliseconds = round(1000 * self._down_after)
        configuration = _configuration(master.port, len(ports) // 2 + 1, milliseconds)
        sentinels = tuple(
            launcher.sentinel(f"sentinel-{index}", port, configuration)
            for index, port in enumerate(ports)
        )
        launch(*sentinels)
        return sentinels


def _launch_replicas(launcher: Launcher, master: Node, ports: list[int]) -> tuple[Node, ...]:
    follow = (*SYNC_AT_ONCE, "--replicaof", HOST, str(master.port))
    replicas = tuple(
        launcher.server(f"replica-{index}", port, *follow) for index, port in enumerate(ports)
    )
    launch(*replicas)
    for replica in replicas:
        replica.wait_until_says("master_link_status:up", "INFO")
    for index in range(len(replicas)):
        master.wait_until_says(f"slave{index}:.*state=online", "INFO")
    return replicas


def _wait_until_watched(sentinels: tuple[Node, ...], known: str) -> None:
    for node in sentinels:
        node.wait_until_says(f"status=ok,.*{known}", "INFO")


def _configuration(master_port: int, quorum: int, down_after: int) -> str:
    return (
        f"sentinel monitor {SERVICE} {HOST} {master_port} {quorum}\n"
        f"sentinel down-after-milliseconds {SERVICE} {down_after}\n"
        f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MILLISECONDS}\n"
    )

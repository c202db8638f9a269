"""A real local cluster."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from redis_lock_decorators.testing.errors import ServerFailed
from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.ports import HOST, free_ports
from redis_lock_decorators.testing.sets import Launcher, LocalSet, launch

if TYPE_CHECKING:
    from redis.cluster import RedisCluster

SLOTS = 16_384
NODE_TIMEOUT_MILLISECONDS = 1500
# A replica's first sync must not wait five seconds for more replicas to join it.
SYNC_AT_ONCE = ("--repl-diskless-sync-delay", "0")
ENABLED = ("--cluster-enabled", "yes", "--cluster-announce-ip", HOST)
TIMEOUT = ("--cluster-node-timeout", str(NODE_TIMEOUT_MILLISECONDS))


class LocalCluster(LocalSet):
    """A cluster whose masters share the slots evenly, in the order of `ports`.

    `nodes` is the number of masters, `replicas` the number of replicas of each, which
    follow the masters in all lists. `binary` is the server program; None means that
    of `find_server()`.
    """

    def __init__(
        self,
        nodes: int = 3,
        binary: str | os.PathLike[str] | None = None,
        replicas: int = 0,
    ) -> None:
        super().__init__(binary)
        self._size = nodes
        self._replicas = replicas

    @property
    def masters(self) -> tuple[Node, ...]:
        """The nodes that were masters at the start."""
        return self.nodes[: self._size]

    def replicas_of(self, master: Node) -> tuple[Node, ...]:
        """The nodes that were replicas of a master at the start."""
        index = self.masters.index(master)
        return self.nodes[self._size + index :: self._size]

    @property
    def ports(self) -> list[int]:
        """The port of each node."""
        return [node.port for node in self.nodes]

    @property
    def urls(self) -> list[str]:
        """The URL of each node."""
        return [node.url for node in self.nodes]

    @property
    def startup_nodes(self) -> list[dict[str, str | int]]:
        """The nodes as `startup_nodes` of redis-py-cluster."""
        return [{"host": node.host, "port": node.port} for node in self.nodes]

    def client(self, **options: Any) -> "RedisCluster":
        """Return a new `redis.cluster.RedisCluster` with these options."""
        # Imported here, as redis-py 3.5 has no cluster client.
        from redis.cluster import RedisCluster

        return RedisCluster(host=HOST, port=self.ports[0], **options)

    def _arrange(self, launcher: Launcher) -> tuple[Node, ...]:
        nodes = tuple(
            launcher.server(f"node-{index}", port, *ENABLED, *TIMEOUT, *SYNC_AT_ONCE)
            for index, port in enumerate(free_ports(self._size * (1 + self._replicas)))
        )
        launch(*nodes)
        masters, replicas = nodes[: self._size], nodes[self._size :]
        _share_slots(masters)
        for node in nodes[1:]:
            _order(nodes[0], "MEET", HOST, node.port)
        for node in nodes:
            _wait_until_joined(node, len(nodes))
        for index, replica in enumerate(replicas):
            _follow(replica, masters[index % len(masters)])
        for replica in replicas:
            replica.wait_until_says("master_link_status:up", "INFO")
        if replicas:
            for node in nodes:
                _wait_until_known(node, len(replicas))
        return nodes


def _share_slots(masters: tuple[Node, ...]) -> None:
    for epoch, (node, slots) in enumerate(zip(masters, _shares(len(masters)), strict=True), 1):
        _order(node, "SET-CONFIG-EPOCH", epoch)
        _order(node, "ADDSLOTS", *slots)


def _follow(replica: Node, master: Node) -> None:
    _order(replica, "REPLICATE", master.ask("CLUSTER", "MYID").strip())


def _wait_until_known(node: Node, replicas: int) -> None:
    def is_known() -> bool:
        rows = [row.split() for row in node.ask("CLUSTER", "NODES").splitlines()]
        return sum("slave" in row[2] for row in rows if len(row) > 2) == replicas

    node.wait_until(is_known, "did not learn of the replicas")


def _shares(nodes: int) -> Iterator[range]:
    for index in range(nodes):
        yield range(SLOTS * index // nodes, SLOTS * (index + 1) // nodes)


def _order(node: Node, *words: str | int) -> None:
    reply = node.ask("CLUSTER", *words)
    if not reply.startswith("+OK"):
        raise ServerFailed(f"{node.name} refused CLUSTER {words[0]}: {reply}")


def _wait_until_joined(node: Node, size: int) -> None:
    node.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")
    node.wait_until(lambda: _links(node) == size, "did not join the cluster")


def _links(node: Node) -> int:
    rows = [row.split() for row in node.ask("CLUSTER", "NODES").splitlines()]
    return sum("handshake" not in row[2] and row[7] == "connected" for row in rows)

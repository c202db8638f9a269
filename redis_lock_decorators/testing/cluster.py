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
ENABLED = ("--cluster-enabled", "yes", "--cluster-announce-ip", HOST)
TIMEOUT = ("--cluster-node-timeout", str(NODE_TIMEOUT_MILLISECONDS))


class LocalCluster(LocalSet):
    """A cluster of masters that share all slots evenly, in the order of `ports`.

    `nodes` is their number. `binary` is the server program; None takes what
    `find_server()` finds.
    """

    def __init__(self, nodes: int = 3, binary: str | os.PathLike[str] | None = None) -> None:
        super().__init__(binary)
        self._size = nodes

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
        # redis-py 3.5 has no cluster client, and can use the rest of this class.
        from redis.cluster import RedisCluster

        return RedisCluster(host=HOST, port=self.ports[0], **options)

    def _arrange(self, launcher: Launcher) -> tuple[Node, ...]:
        nodes = tuple(
            launcher.server(f"node-{index}", port, *ENABLED, *TIMEOUT)
            for index, port in enumerate(free_ports(self._size))
        )
        launch(*nodes)
        for epoch, (node, slots) in enumerate(zip(nodes, _shares(len(nodes)), strict=True), 1):
            _order(node, "SET-CONFIG-EPOCH", epoch)
            _order(node, "ADDSLOTS", *slots)
        for node in nodes[1:]:
            _order(nodes[0], "MEET", HOST, node.port)
        for node in nodes:
            _wait_until_joined(node, len(nodes))
        return nodes


def _shares(nodes: int) -> Iterator[range]:
    for index in range(nodes):
        yield range(SLOTS * index // nodes, SLOTS * (index + 1) // nodes)


def _order(node: Node, *words: str | int) -> None:
    said = node.ask("CLUSTER", *words)
    if not said.startswith("+OK"):
        raise ServerFailed(f"{node.name} refused CLUSTER {words[0]}: {said}")


def _wait_until_joined(node: Node, size: int) -> None:
    node.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")
    node.wait_until(lambda: _links(node) == size, "did not join the cluster")


def _links(node: Node) -> int:
    rows = [row.split() for row in node.ask("CLUSTER", "NODES").splitlines()]
    return sum("handshake" not in row[2] and row[7] == "connected" for row in rows)

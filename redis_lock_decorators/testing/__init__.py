"""Real local servers for tests: one server, a cluster, a Sentinel set."""

from redis_lock_decorators.testing.address import LocalAddress
from redis_lock_decorators.testing.binaries import find_server
from redis_lock_decorators.testing.cluster import LocalCluster
from redis_lock_decorators.testing.errors import ServerFailed, ServerNotFound
from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.sentinel import LocalSentinel
from redis_lock_decorators.testing.servers import LocalServer

__all__ = [
    "LocalAddress",
    "LocalCluster",
    "LocalSentinel",
    "LocalServer",
    "Node",
    "ServerFailed",
    "ServerNotFound",
    "find_server",
]

"""One real local server."""

import os
from typing import Any

import redis

from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.ports import free_ports
from redis_lock_decorators.testing.sets import Launcher, LocalSet, launch


class LocalServer(LocalSet):
    """A server without persistence, on a free port of 127.0.0.1.

    `arguments` are added to the server's command line, such as "--maxmemory", "10mb".
    `binary` is the server program; None means that of `find_server()`.
    """

    def __init__(self, *arguments: str, binary: str | os.PathLike[str] | None = None) -> None:
        super().__init__(binary)
        self._arguments = arguments

    @property
    def host(self) -> str:
        """The address the server listens on."""
        return self._node.host

    @property
    def port(self) -> int:
        """The port, which stays the same until `stop()`."""
        return self._node.port

    @property
    def url(self) -> str:
        """The server's URL, database 0."""
        return self._node.url

    @property
    def pid(self) -> int:
        """The server's process id; raises ServerFailed when it does not run."""
        return self._node.pid

    def client(self, **options: Any) -> redis.Redis:
        """Return a new `redis.Redis` for this server with these options."""
        return self._node.client(**options)

    def kill(self) -> None:
        """Kill the server immediately, like a crash; it keeps its port."""
        self._node.kill()

    def pause(self) -> None:
        """Stop the server's process; it keeps its connections and answers nothing."""
        self._node.pause()

    def resume(self) -> None:
        """Resume a paused server."""
        self._node.resume()

    def restart(self) -> None:
        """Kill the server and start it on the same port, empty; raises ServerFailed."""
        self._node.restart()

    @property
    def _node(self) -> Node:
        return self.nodes[0]

    def _arrange(self, launcher: Launcher) -> tuple[Node, ...]:
        (port,) = free_ports(1)
        node = launcher.server("server", port, *self._arguments)
        launch(node)
        return (node,)

"""The base of all sets of local servers."""

import abc
import dataclasses
import os
import pathlib
from typing import TypeVar

from redis_lock_decorators.testing.binaries import find_server, server_version
from redis_lock_decorators.testing.errors import ServerFailed
from redis_lock_decorators.testing.node import Node
from redis_lock_decorators.testing.ports import HOST
from redis_lock_decorators.testing.processes import Processes

PORT_TRIES = 5
PORT_TAKEN = "Address already in use"

AnySet = TypeVar("AnySet", bound="LocalSet")


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Creates the nodes of one set."""

    binary: pathlib.Path
    version: tuple[int, int]
    processes: Processes

    def server(self, name: str, port: int, *arguments: str) -> Node:
        """Return a server, not started, without persistence."""
        command = [str(self.binary), "--bind", HOST, "--port", str(port)]
        command += ["--save", "", "--appendonly", "no"]
        if self.version >= (7, 0):
            command += ["--enable-debug-command", "local"]
        return Node(name, port, (*command, *arguments), self.processes)

    def sentinel(self, name: str, port: int, configuration: str) -> Node:
        """Return a Sentinel, not started, with these lines of configuration."""
        listen = f"bind {HOST}\nport {port}\n"
        self.processes.write(name, "sentinel.conf", listen + configuration)
        command = (str(self.binary), "sentinel.conf", "--sentinel")
        return Node(name, port, command, self.processes)


def launch(*nodes: Node) -> None:
    """Start nodes concurrently and wait until all answer; raises ServerFailed."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_up()


class LocalSet(abc.ABC):
    """Local servers that start and stop together.

    `binary` is the server program; None means that of `find_server()`.
    """

    def __init__(self, binary: str | os.PathLike[str] | None = None) -> None:
        self._binary = binary
        self._processes: Processes | None = None
        self._nodes: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All servers of the set; raises ServerFailed before the first start."""
        if not self._nodes:
            raise ServerFailed(f"{type(self).__name__} was not started")
        return self._nodes

    @property
    def folder(self) -> pathlib.Path:
        """The folder with every server's files, removed by `stop()`."""
        return self.nodes[0].processes.folder

    def start(self: AnySet) -> AnySet:
        """Start the servers on free ports and wait until they work together.

        Does nothing if they run. Raises ServerNotFound and ServerFailed.
        """
        if self._processes is None:
            self._processes = self._start_on_free_ports()
        return self

    def stop(self) -> None:
        """Kill the servers and remove their folder; does nothing if they are stopped."""
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.close()

    def __enter__(self: AnySet) -> AnySet:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abc.abstractmethod
    def _arrange(self, launcher: Launcher) -> tuple[Node, ...]:
        """Start all nodes, make them one set, and return them."""

    def _start_on_free_ports(self) -> Processes:
        if not hasattr(os, "register_at_fork"):  # Windows: no process ends with its owner
            raise ServerFailed("local servers need a POSIX system, such as Linux or macOS")
        binary = pathlib.Path(self._binary or find_server()).absolute()
        for _ in range(PORT_TRIES - 1):
            try:
                return self._start_once(binary)
            except ServerFailed as failure:
                if PORT_TAKEN not in failure.log:
                    raise
        return self._start_once(binary)

    def _start_once(self, binary: pathlib.Path) -> Processes:
        version = server_version(binary)
        processes = Processes()
        try:
            self._nodes = self._arrange(Launcher(binary, version, processes))
        except BaseException:
            processes.close()
            raise
        return processes

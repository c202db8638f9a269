"""One local server, which a test can stop, pause and query."""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators.testing.errors import ServerFailed
from redis_lock_decorators.testing.ports import HOST
from redis_lock_decorators.testing.processes import Processes

UP_SECONDS = 20.0
ANSWER_SECONDS = 2.0
POLL_SECONDS = 0.01


@dataclasses.dataclass(frozen=True)
class Node:
    """A server on 127.0.0.1 that keeps its `port` over `kill()` and `restart()`."""

    name: str
    port: int
    command: tuple[str, ...]
    processes: Processes = dataclasses.field(repr=False)

    @property
    def host(self) -> str:
        """The address the server listens on."""
        return HOST

    @property
    def url(self) -> str:
        """The server's URL, database 0."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; raises ServerFailed when it does not run."""
        return self.processes.pid(self.name)

    def client(self, **options: Any) -> redis.Redis:
        """Return a new `redis.Redis` for this server with these options."""
        return redis.Redis(HOST, self.port, **options)

    def kill(self) -> None:
        """Kill the server immediately, like a crash."""
        self.processes.kill(self.name)

    def pause(self) -> None:
        """Stop the server's process; it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        os.kill(self.pid, signal.SIGCONT)

    def launch(self) -> None:
        """Start the server's process without waiting until it answers."""
        self.processes.start(self.name, list(self.command))

    def restart(self) -> None:
        """Kill the server and start it on the same port; raises ServerFailed."""
        self.kill()
        self.launch()
        self.wait_until_up()

    def wait_until_up(self) -> None:
        """Wait until this process answers on the port; raises ServerFailed."""
        self.wait_until(self._is_up, "did not answer")

    def wait_until_says(self, pattern: str, *words: str) -> None:
        """Wait until the reply to a command matches; raises ServerFailed."""
        question = " ".join(words)
        self.wait_until(
            lambda: re.search(pattern, self.ask(*words)) is not None,
            f"did not answer {pattern!r} to {question}",
        )

    def wait_until(self, is_so: Callable[[], bool], problem: str) -> None:
        """Wait at most 20 seconds for `is_so`; raises ServerFailed with the log."""
        deadline = time.monotonic() + UP_SECONDS
        while time.monotonic() < deadline:
            if self.processes.has_ended(self.name):
                raise ServerFailed(f"{self.name} ended", self.processes.log(self.name))
            with contextlib.suppress(OSError):
                if is_so():
                    return
            time.sleep(POLL_SECONDS)
        raise ServerFailed(f"{self.name} {problem}", self.processes.log(self.name))

    def ask(self, *words: str | int) -> str:
        """Return a command's reply as text, an error with its "-", "" for nothing; no arrays.

        It uses no client library, so it works the same with every version.
        """
        with socket.create_connection((HOST, self.port), ANSWER_SECONDS) as connection:
            connection.sendall(_frame(words))
            with connection.makefile("rb") as reply:
                head = reply.readline()
                is_text = head.startswith(b"$")
                answer = reply.read(max(0, int(head[1:]))) if is_text else head
        return answer.decode(errors="replace")

    def _is_up(self) -> bool:
        reply = self.ask("INFO")
        if reply.startswith(("-NOAUTH", "-NOPERM")):
            return True
        # Another process may be listening on the port.
        return f"process_id:{self.pid}\r" in reply and "loading:1\r" not in reply


def _frame(words: tuple[str | int, ...]) -> bytes:
    texts = [str(word).encode() for word in words]
    bulks = b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)
    return b"*%d\r\n%b" % (len(texts), bulks)

"""The connection from an owner to its guard: one JSON request, one JSON reply."""

import contextlib
import itertools
import json
import socket
import threading
from typing import Any

from redis_lock_decorators.testing.errors import ServerFailed


class GuardConnection:
    """Sends requests to a guard over a socket, from one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._numbers = itertools.count()
        self._mutex = threading.Lock()
        self._unread = b""

    def ask(self, verb: str, *words: str) -> Any:
        """Return the guard's reply; raises ServerFailed with its error."""
        with self._mutex:
            number = next(self._numbers)
            value, error = self._exchange([number, verb, *words])
        if error is not None:
            raise ServerFailed(error)
        return value

    def shut_down(self) -> None:
        """Close the connection in every process that has a copy of it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def close(self) -> None:
        """Close this process's copy of the connection only."""
        self._connection.close()

    def _exchange(self, request: list[Any]) -> tuple[Any, str | None]:
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            number, value, error = self._receive()
            # After an interruption (Ctrl-C), the reply to an older request may arrive first.
            while number != request[0]:
                number, value, error = self._receive()
        except (OSError, EOFError) as gone:
            raise ServerFailed("the guard of the servers has ended") from gone
        return value, error

    def _receive(self) -> tuple[int, Any, str | None]:
        while b"\n" not in self._unread:
            part = self._connection.recv(65536)
            if not part:
                raise EOFError
            self._unread += part
        reply, _, self._unread = self._unread.partition(b"\n")
        number, value, error = json.loads(reply)
        return number, value, error

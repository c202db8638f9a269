"""A server that is further away: a proxy, in its own process, that only adds delay."""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

HOST = "127.0.0.1"


@contextlib.contextmanager
def distant(port: int, round_trip: float, processes: Any = multiprocessing) -> Iterator[int]:
    """A port at which the server answers with ``round_trip`` seconds of added delay."""
    listener = socket.create_server((HOST, 0), backlog=256)
    proxy = processes.Process(target=delay, args=(listener, port, round_trip / 2), daemon=True)
    proxy.start()
    try:
        yield listener.getsockname()[1]
    finally:
        proxy.kill()
        proxy.join()
        listener.close()


def delay(listener: socket.socket, port: int, seconds: float) -> None:
    """Forward data in both directions, each chunk ``seconds`` after it arrived.

    All chunks have the same delay, so they leave in the order of their arrival.
    """
    # Only this selector supports timeouts below a millisecond.
    with selectors.SelectSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        due: deque[tuple[float, socket.socket, bytes]] = deque()
        while True:
            left = max(0.0, due[0][0] - time.monotonic()) if due else None
            for key, _ in selector.select(left):
                if key.fileobj is listener:
                    connect(listener, port, selector)
                else:
                    due.append((time.monotonic() + seconds, key.data, received(key.fileobj)))
                    if not due[-1][2]:
                        selector.unregister(key.fileobj)
            while due and due[0][0] <= time.monotonic():
                send(*due.popleft()[1:])


def connect(listener: socket.socket, port: int, selector: selectors.BaseSelector) -> None:
    client, server = listener.accept()[0], socket.create_connection((HOST, port))
    for end, other in ((client, server), (server, client)):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(end, selectors.EVENT_READ, other)


def received(end: Any) -> bytes:
    """The data that arrived; empty if the connection was closed or reset."""
    try:
        data: bytes = end.recv(65536)
    except OSError:
        return b""
    return data


def send(end: socket.socket, data: bytes) -> None:
    # A closed connection needs no more data.
    with contextlib.suppress(OSError):
        if data:
            end.sendall(data)
        else:
            end.shutdown(socket.SHUT_WR)

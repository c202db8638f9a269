"""A server that is further away: a proxy, in a process of its own, that only delays."""

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
    """The port at which the server answers later by so many seconds."""
    subscriber = socket.create_server((HOST, 0), backlog=256)
    proxy = processes.Process(target=delay, args=(subscriber, port, round_trip / 2), daemon=True)
    proxy.start()
    try:
        yield subscriber.getsockname()[1]
    finally:
        proxy.kill()
        proxy.join()
        subscriber.close()


def delay(subscriber: socket.socket, port: int, seconds: float) -> None:
    """Carry every piece in both directions, each ``seconds`` after it came.

    All pieces are delayed alike, so they leave in the order in which they came.
    """
    # Only this selector waits for less than a millisecond.
    with selectors.SelectSelector() as selector:
        selector.register(subscriber, selectors.EVENT_READ)
        due: deque[tuple[float, socket.socket, bytes]] = deque()
        while True:
            left = max(0.0, due[0][0] - time.monotonic()) if due else None
            for key, _ in selector.select(left):
                if key.fileobj is subscriber:
                    connect(subscriber, port, selector)
                else:
                    due.append((time.monotonic() + seconds, key.data, received(key.fileobj)))
                    if not due[-1][2]:
                        selector.unregister(key.fileobj)
            while due and due[0][0] <= time.monotonic():
                send(*due.popleft()[1:])


def connect(subscriber: socket.socket, port: int, selector: selectors.BaseSelector) -> None:
    client, server = subscriber.accept()[0], socket.create_connection((HOST, port))
    for end, other in ((client, server), (server, client)):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(end, selectors.EVENT_READ, other)


def received(end: Any) -> bytes:
    """What came; nothing from an end that has left."""
    try:
        data: bytes = end.recv(65536)
    except OSError:
        return b""
    return data


def send(end: socket.socket, data: bytes) -> None:
    # Whoever has left needs nothing more.
    with contextlib.suppress(OSError):
        if data:
            end.sendall(data)
        else:
            end.shutdown(socket.SHUT_WR)

"""Free TCP ports."""

import itertools
import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
BUS_OFFSET = 10_000
# Ports and bus ports are below the ephemeral range of outgoing connections, so that
# the port of a killed server is still free when it restarts.
CHOICE = range(10_240, 22_240)


def free_ports(count: int) -> list[int]:
    """Return ports whose cluster bus ports (10,000 higher) are free too."""
    return list(itertools.islice(_free_ports(), count))


def _free_ports() -> Iterator[int]:
    for port in random.sample(CHOICE, len(CHOICE)):
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            yield port


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True

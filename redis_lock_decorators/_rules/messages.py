"""The pub/sub messages on the channel of a subscriber, where any client may publish."""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

_RUN_ID = re.compile(rb"run_id:([0-9a-fA-F]+)")


def _fast_sha1() -> Any:
    """SHA-1 for texts of some hundred bytes.

    CPython's own, which ``hashlib`` falls back to: OpenSSL's takes longer to find its algorithm.
    """
    try:
        return importlib.import_module("_sha1").sha1
    except ImportError:
        return importlib.import_module("hashlib").sha1


_sha1 = _fast_sha1()


class Message(NamedTuple):
    """A parsed message; any client that may publish can have sent it.

    Attributes:
        kind: ``b"turn"`` (the lock is granted) or ``b"again"`` (join the queue again).
        hint: the queue entry that it is for, see ``hint()``.
        proof: the proof that the server granted the lock to that entry; may be empty.
    """

    kind: bytes
    hint: bytes
    proof: bytes


def parsed(data: object) -> Message | None:
    """Parse a message; return None for anything else."""
    parts = data.split(b"|") if isinstance(data, bytes) else []
    if len(parts) == 3 and parts[0] == b"turn":
        return Message(parts[0], parts[1], parts[2])
    if len(parts) == 2 and parts[0] == b"again":
        return Message(parts[0], parts[1], b"")
    return None


@lru_cache(maxsize=1024)  # needed whenever a waiter joins, enters or leaves the queue
def hint(identifier: str) -> bytes:
    """Return the public name of a queue entry: a hash that does not disclose the identifier."""
    found: str = _sha1(identifier.encode(), usedforsecurity=False).hexdigest()
    return found.encode()


def proof(run_id: bytes, identifier: str, key: bytes) -> bytes:
    """Return the proof that the server with this ``run_id`` granted the lock to the identifier."""
    data = b"%b|%b|%b" % (run_id, identifier.encode(), key)
    found: str = _sha1(data, usedforsecurity=False).hexdigest()
    return found.encode()


def run_id(info: object) -> bytes | None:
    """Return the ``run_id`` of the server's process, from its reply to INFO."""
    found = _RUN_ID.search(info) if isinstance(info, bytes) else None
    return found[1] if found else None

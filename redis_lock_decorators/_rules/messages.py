"""What is said on the channel of a listener, where others may speak and hear."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

_RUN_ID = re.compile(rb"run_id:([0-9a-fA-F]+)")


class Message(NamedTuple):
    """One word as it was heard: whoever may publish can have said it.

    Attributes:
        kind: ``b"turn"`` or ``b"again"``.
        hint: which place it is for.
        proof: that a server handed the lock to that place; empty without one.
    """

    kind: bytes
    hint: bytes
    proof: bytes


def parsed(data: object) -> Message | None:
    """A word, None for anything else."""
    parts = data.split(b"|") if isinstance(data, bytes) else []
    if len(parts) == 3 and parts[0] == b"turn":
        return Message(parts[0], parts[1], parts[2])
    if len(parts) == 2 and parts[0] == b"again":
        return Message(parts[0], parts[1], b"")
    return None


@lru_cache(maxsize=1024)  # asked for whenever somebody joins, enters or leaves
def hint(identifier: str) -> bytes:
    """The public name of the place of an identifier, which it does not disclose."""
    return _digest(identifier.encode())


def proof(run_id: bytes, identifier: str, key: bytes) -> bytes:
    """What the process of the server with this ``run_id`` says when it hands the lock over."""
    return _digest(b"%b|%b|%b" % (run_id, identifier.encode(), key))


def run_id(info: object) -> bytes | None:
    """The random name of a process of the server, from its reply to INFO."""
    found = _RUN_ID.search(info) if isinstance(info, bytes) else None
    return found[1] if found else None


def _digest(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest().encode()

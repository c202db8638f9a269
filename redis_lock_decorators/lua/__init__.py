"""The scripts that run inside the server: one verb a file."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: bytes
    sha: bytes


@cache
def script(verb: str) -> Script:
    """The script of a verb such as "acquire", read once."""
    text = Path(__file__).with_name(f"{verb}.lua").read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())

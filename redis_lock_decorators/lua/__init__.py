"""The scripts that run inside the server: one verb a file."""

from __future__ import annotations

import hashlib
import pkgutil
from functools import cache
from typing import NamedTuple


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: bytes
    sha: bytes


@cache
def script(verb: str) -> Script:
    """The script of a verb such as "acquire", read once."""
    text = pkgutil.get_data(__name__, f"{verb}.lua")
    if text is None:
        raise FileNotFoundError(f"{verb}.lua is missing from the installed package")
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())

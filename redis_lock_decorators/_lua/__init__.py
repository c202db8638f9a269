"""The scripts that run inside the server: one verb a file."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: bytes
    sha: bytes


#: How long what lies beside a lock is kept at most when nobody waits for it any more, in
#: milliseconds: its queue, what is noted of waiters, its last number.
KEPT = 60_000
#: How long it is noted who released a lock, in milliseconds: a request is not repeated later.
NOTED = 30_000
#: Of how many releases of a lock that is noted at most: the last.
MOST_NOTED = 1_000
#: What stands before the scripts of some verbs: "promote" before those that may hand a lock on.
BEFORE = {
    **dict.fromkeys(("cancel", "enqueue", "force", "recheck", "release", "min_hold"), "promote"),
    **dict.fromkeys(("adjust", "time_left", "settle"), "end_of_key"),
}


@cache
def script(verb: str) -> Script:
    """The script of a verb such as "acquire", read once."""
    parts = (BEFORE[verb], verb) if verb in BEFORE else (verb,)
    folder = files(__package__)  # there may be no files: a program may be one archive
    limits = b"local KEPT, NOTED, MOST_NOTED = %d, %d, %d\n" % (KEPT, NOTED, MOST_NOTED)
    begin = limits if parts[0] == "promote" else b""
    text = b"".join([begin, *[folder.joinpath(f"{part}.lua").read_bytes() for part in parts]])
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


@cache
def load() -> None:
    """Read what ends a lease before one is acquired: at the interpreter's end it cannot be read."""
    for verb in ("release", "min_hold", "unlock", "cancel", "time_left"):
        script(verb)

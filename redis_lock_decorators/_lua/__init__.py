"""The scripts that run inside the server, one verb per file."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A script's text and the SHA-1 by which a server knows it."""

    text: bytes
    sha: bytes


#: The time to live of a lock's other keys without waiters, in milliseconds: its queue, the state
#: of its waiters, its last fence.
COMPANION_TTL = 60_000
#: How long a release is recorded, in milliseconds: no request is repeated later.
RECORD_TTL = 30_000
#: The most releases of a lock that are recorded.
MOST_RECORDS = 1_000
#: The files that are included before a verb's script: "grant_next" if it may grant a lock,
#: "only_master" if it may answer without writing.
INCLUDED = {
    **dict.fromkeys(("cancel", "recheck"), ("grant_next",)),
    **dict.fromkeys(("enqueue", "force", "min_hold"), ("only_master", "grant_next")),
    "release": ("release_unawaited", "only_master", "grant_next"),
    **dict.fromkeys(("adjust", "time_left", "settle", "unlock"), ("only_master", "end_of_key")),
    **dict.fromkeys(("acquire", "acquire_fenced", "extend", "renew"), ("only_master",)),
    "enter": ("only_master",),
}


@cache
def script(verb: str) -> Script:
    """The script of a verb such as "acquire", read once."""
    parts = (*INCLUDED[verb], verb)
    folder = files(__package__)  # not a path: the program may be one zip archive
    names = b"COMPANION_TTL, RECORD_TTL, MOST_RECORDS"
    limits = b"local %b = %d, %d, %d\n" % (names, COMPANION_TTL, RECORD_TTL, MOST_RECORDS)
    begin = limits if "grant_next" in parts else b""
    text = b"".join([begin, *[folder.joinpath(f"{part}.lua").read_bytes() for part in parts]])
    return Script(text, digest(text))


@cache
def with_owner_info(verb: str) -> Script:
    """The script of a verb that also stores or removes the information about the holder."""
    wrapper = files(__package__).joinpath("owner_info.lua").read_bytes()
    text = b"%breturn attach(function()\n%bend)\n" % (wrapper, script(verb).text)
    return Script(text, digest(text))


def digest(text: bytes) -> bytes:
    """The SHA-1 by which a server knows a script."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


@cache
def load() -> None:
    """Read the scripts that end a lease, as no file can be read when the interpreter shuts down."""
    for verb in ("release", "min_hold", "unlock", "cancel", "extend", "time_left"):
        script(verb)


@cache
def load_with_owner_info() -> None:
    """The same for locks that store information about their holder."""
    for verb in ("release", "min_hold", "cancel", "extend"):
        with_owner_info(verb)

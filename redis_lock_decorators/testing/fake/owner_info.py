"""``owner_info.lua`` in Python: what is done after the script of a verb."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from redis_lock_decorators.testing.fake.scripts import Redis

#: Milliseconds without an end of the lock.
LONGEST = 60_000


class Info(NamedTuple):
    """The information about the holder of a key, as the request has it."""

    companion: Any
    key: Any
    identifier: str
    text: str


def split(keys: Any, arguments: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], list[Info]]:
    """The keys and arguments of the verb itself, and the information."""
    *arguments, count = arguments
    count = int(count)
    cut = len(arguments) - 3 * count
    fields = [arguments[at : at + 3] for at in range(cut, len(arguments), 3)]
    companions = keys[len(keys) - count :]
    infos = [
        Info(companion, keys[int(number) - 1], identifier or arguments[0], text)
        for companion, (number, identifier, text) in zip(companions, fields, strict=True)
    ]
    return tuple(keys[: len(keys) - count]), tuple(arguments[:cut]), infos


def attach(redis: Redis, serial: int, infos: list[Info], verb: Callable[[], Any]) -> Any:
    """Run the verb, then bring the information in line with each lock key."""
    reply, other, stored = verb(), "", 0
    for companion, key, identifier, text in infos:
        holder, found = redis.value(key), redis.value(companion) or ""
        match = re.fullmatch(r'\{"of":"([0-9a-f]+)","n":([0-9]+),(.+)', found)
        of, number, rest = match.groups() if match else ("", "0", "")
        own = digest(identifier)
        if holder == identifier and text:
            if text.startswith("*"):
                fence = reply[1] if isinstance(reply, list) else None
                known = isinstance(fence, int) or str(fence).isdecimal()
                text = f'"fence":{fence},{text[1:]}' if known else text[1:]
            left = redis.pttl(key)
            left = max(left, 1) if left >= 0 else LONGEST
            if of == own and (rest == text or int(number) > serial):
                redis.pexpire(companion, left)
            else:
                redis.set(companion, f'{{"of":"{own}","n":{serial},{text}', left)
            stored += 1
        elif of == own and holder != identifier:
            redis.delete(companion)
        elif isinstance(holder, str) and of == digest(holder):
            other = other or found
    is_done = not other and stored == sum(info.text != "" for info in infos)
    return reply if is_done else [stored, reply, other]


def digest(identifier: str) -> str:
    """What is stored of an identifier."""
    return hashlib.sha1(identifier.encode(errors="surrogateescape")).hexdigest()  # noqa: S324

"""The scripts for leases in Python: they acquire, extend, renew and release by compare."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from redis_lock_decorators._flow.identifiers import GOT_LAST
from redis_lock_decorators.testing.fake.clock import EPOCH
from redis_lock_decorators.testing.fake.commands import Commands, seconds_of

if TYPE_CHECKING:
    from redis_lock_decorators.testing.fake.server import SimulatedServer


class LeaseScripts:
    """The scripts, a method each: the first item of the reply, the keys, then the arguments."""

    def __init__(self, server: SimulatedServer, commands: Commands) -> None:
        self._server = server
        self._commands = commands

    def _not_held(self, keys: Any, identifier: str) -> list[bytes]:
        return [key for key in keys if self._server.value(key) != identifier]

    def acquire(
        self, mark: bytes, keys: Any, identifier: str, milliseconds: int, mode: int = 0
    ) -> Any:
        if mode == 3:
            keys = keys[:-1]
        refusal = self._refusal(mark, keys, "" if mode == 2 else identifier, len(keys) > 1)
        for key in keys if refusal is None else ():
            self._lengthen(key, identifier, milliseconds)
            self._server.writes[key] += 1  # also if the lease is long enough
        if mode != 1:
            return refusal or mark
        return [*(refusal or [mark]), str(self._server.time() // 1000)]

    def acquire_fenced(
        self, mark: bytes, keys: Any, identifier: str, milliseconds: int, kept: int
    ) -> Any:
        half = len(keys) // 2
        locks, numbers = keys[:half], keys[half : 2 * half]
        refusal = self._refusal(mark, locks, identifier, True)
        if refusal is not None:
            return refusal
        fence = max(int(self._server._hget(key, "fence") or 0) for key in numbers)
        is_new = any(self._server._hget(key, "of") != identifier for key in numbers)
        if is_new or any(self._server._get(key) is None for key in locks):
            fence = max(fence + 1, self._server.time())
        for key in numbers:
            fields = {**(self._server._any(key) or {}), "fence": str(fence), "of": identifier}
            self._server._stored[key] = (fields, self._server._now() + seconds_of(kept))
            self._server.writes[key] += 1
        for key in locks:
            self._lengthen(key, identifier, milliseconds)
        return [mark, fence]

    def _refusal(
        self, mark: bytes, keys: Any, identifier: str, is_placed: bool
    ) -> list[Any] | None:
        for key in self._not_held(keys, identifier):
            if self._server._get(key) is not None:
                place = [keys.index(key) + 1] if is_placed else []
                return [mark, self._server._get(key), self._server._pttl(key), *place]
        return None

    def extend(self, mark: bytes, keys: Any, identifier: str, milliseconds: int) -> Any:
        for key in keys:
            if self._server.found(key) != identifier:
                return [mark, b"" if self._server.found(key) is None else self._server.found(key)]
        for key in keys:
            before = self._server._pttl(key)
            self._lengthen(key, identifier, milliseconds)
            if self._server._pttl(key) != before:
                self._server.extended.append((key, identifier))
        return mark

    def renew(self, mark: bytes, keys: Any, _: str, *leases: Any) -> Any:
        assert len(leases) == 2 * len(keys)
        lost: list[Any] = []
        for place, key in enumerate(keys):
            identifier, milliseconds = leases[2 * place : 2 * place + 2]
            found = self._server._any(key)
            if isinstance(found, dict):
                lost += (place, 0)
            elif self._server.value(key) == identifier:
                self._lengthen(key, identifier, milliseconds)
                self._server.renewed.append((key, identifier))
            else:
                lost += (place, found or b"")
        return [mark, *lost] if lost else mark

    def settle(
        self,
        mark: bytes,
        keys: Any,
        identifier: str,
        last: str,
        endless: int,
        latest: int,
        record_ms: int | str = 0,
    ) -> Any:
        (key, *others), holder = keys, self._server.value(keys[0])
        own = GOT_LAST + identifier
        if len(others) == 3 and self._server._zscore(others[2], identifier) is not None:
            return [mark, self._server._get(key) or b""]
        if len(others) == 3:
            is_settled = self._server._zscore(others[2], own) is not None
        else:
            is_settled = record_ms != "first"
        if holder == last and holder != identifier and is_settled:
            return mark
        if holder != identifier:
            return [mark, self._server._get(key) or b""]
        if self._server.end(key) > latest:
            return [mark, holder, self._server.end(key)]
        if others and (self._server._hget(others[1], "granted") or "").split("|")[1:2] == [holder]:
            self._server._hdel(others[1], "granted")
        if len(others) == 3:
            self._note_settled(others[2], own, int(record_ms))
        if endless == 1 or self._server.end(key) == -1:
            self._server.put(key, last)
        elif last != holder:
            self._server.put(key, last, max(1, self._server._pttl(key)) / 1000)
        return mark

    def time_left(self, mark: bytes, keys: Any, identifier: str, from_master: int = 0) -> Any:
        (key,) = keys
        if self._server.value(key) != identifier:
            return [mark, self._server._get(key)]
        return [mark, str(self._server.end(key)), self._server._pttl(key)]

    def adjust(
        self, mark: bytes, keys: Any, identifier: str, seen: int, wanted: int, latest: int
    ) -> Any:
        (key,) = keys
        if self._server.value(key) != identifier:
            return [mark, self._server._get(key) or b""]
        if self._server.end(key) == seen and self._server.time() / 1000 <= latest:
            self._server.put(key, identifier, (wanted - EPOCH // 1000) / 1000 - self._server._now())
            return mark
        return [mark, self._server._get(key), 0 if self._server.end(key) == wanted else 1]

    def unlock(
        self, mark: bytes, keys: Any, identifier: str, rest: int, end: int | None = None
    ) -> Any:
        (key,), resting = keys, f"{identifier}:rest"
        holder = self._server.found(key)
        if holder == identifier and end is not None and self._server.end(key) != end:
            return [mark, holder]
        if holder == identifier and rest:
            self._server.put(key, resting, rest / 1000)
        elif holder == identifier:
            self._server._del(key)
        elif holder != resting:
            return [mark, b"" if holder is None else holder]
        return mark

    def _note_settled(self, released: bytes, own: str, record_ms: int) -> None:
        self._commands.ztrim(released, -1, sys.maxsize)
        self._commands.zadd(released, -1, own)
        self._commands.pexpire(released, record_ms)

    def _lengthen(self, key: bytes, identifier: str, milliseconds: int) -> None:
        if self._server._pttl(key) != -1 and self._server._pttl(key) < milliseconds:
            self._server.put(key, identifier, seconds_of(milliseconds))

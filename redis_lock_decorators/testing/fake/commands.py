"""The commands of a simulated server, as the model of the scripts calls them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis_lock_decorators.testing.fake.server import SimulatedServer


class Commands:
    """``scripts.Redis`` on a simulated server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self.get = server.value
        self.value = server.found
        self.pttl = server._pttl
        self.hget = server._hget
        self.hdel = self.zrem = server._hdel
        self.publish = server.publish
        self.numsub = server.numsub

    def set(self, key: bytes, value: str, milliseconds: int) -> None:
        self._server.put(key, value, seconds_of(milliseconds))

    def pexpire(self, key: bytes, milliseconds: int) -> int:
        if not self.exists(key):
            return 0
        end = self._server._now() + seconds_of(milliseconds)
        self._server._stored[key] = (self._server._any(key), end)
        return 1

    def exists(self, key: bytes) -> bool:
        return self._server._any(key) is not None

    def delete(self, *keys: bytes) -> None:
        for key in keys:
            if isinstance(self._server._any(key), dict):
                self._server.drop(key)
            else:
                self._server._del(key)

    def hset(self, key: bytes, field: str, value: Any) -> None:
        found = self._server._any(key) or {}
        _, end = self._server._stored.get(key, (None, math.inf))
        self._server._stored[key] = ({**found, field: value}, end)

    def zadd(self, key: bytes, score: float, member: str) -> None:
        self.hset(key, member, score)

    def zscore(self, key: bytes, member: str) -> int | None:
        return self._server.members(key).get(member)

    def ztrim(self, key: bytes, least: int, most: int) -> None:
        for number, member in enumerate(reversed(self.zall(key))):
            if number >= most or self.zscore(key, member) <= least:  # type: ignore[operator]
                self.zrem(key, member)

    def milliseconds(self) -> int:
        return self._server.time() // 1000

    def zlast(self, key: bytes) -> float | None:
        return max(self._server.members(key).values(), default=None)

    def run_id(self) -> str | None:
        return self._server.run_id

    def zall(self, key: bytes) -> list[str]:
        waiting = self._server.members(key)
        return sorted(waiting, key=lambda member: (waiting[member], member))

    def zpopmin(self, key: bytes) -> str | None:
        waiting = self._server.members(key)
        if not waiting:
            return None
        least = min(waiting.values())
        first = min(member for member, score in waiting.items() if score == least)
        self.zrem(key, first)
        return first


def seconds_of(milliseconds: object) -> float:
    """The seconds of a time to live; fails unless it is a positive integer."""
    assert type(milliseconds) is int
    assert milliseconds > 0, "a key must have a positive time to live"
    return milliseconds / 1000

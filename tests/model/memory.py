"""A minimal server in memory for the queue scripts."""

from __future__ import annotations

from typing import Any


class Memory:
    """A server in memory without time: a key keeps the time to live that was last set.

    Attributes:
        subscribed: the channels with a subscriber.
        patterns: the channels that only a pattern subscription matches.
        published: the published messages: (channel, message).
        number: the ``run_id`` of the server; None without the right to read it.
    """

    def __init__(self) -> None:
        self.strings: dict[Any, tuple[str, int]] = {}
        self.queues: dict[Any, dict[str, int]] = {}
        self.hashes: dict[Any, dict[str, str]] = {}
        self.subscribed: set[str] = set()
        self.patterns: set[str] = set()
        self.number: str | None = "0"
        self.published: list[tuple[str, str]] = []

    def get(self, key: Any) -> str | None:
        return self.strings[key][0] if key in self.strings else None

    def value(self, key: Any) -> Any:
        return 0 if key in self.hashes or key in self.queues else self.get(key)

    def set(self, key: Any, value: str, milliseconds: int) -> None:
        self.strings[key] = (value, milliseconds)

    def pttl(self, key: Any) -> int:
        return self.strings[key][1] if key in self.strings else -2

    def pexpire(self, key: Any, milliseconds: int) -> None:
        if key in self.strings:
            self.strings[key] = (self.strings[key][0], milliseconds)

    def exists(self, key: Any) -> bool:
        return any(key in kind for kind in (self.strings, self.queues, self.hashes))

    def delete(self, *keys: Any) -> None:
        for key in keys:
            for kind in (self.strings, self.queues, self.hashes):
                kind.pop(key, None)  # type: ignore[attr-defined]

    def hget(self, key: Any, field: str) -> str | None:
        return self.hashes.get(key, {}).get(field)

    def hset(self, key: Any, field: str, value: str) -> None:
        self.hashes.setdefault(key, {})[field] = value

    def hdel(self, key: Any, field: str) -> None:
        _drop(self.hashes, key, field)

    def zadd(self, key: Any, score: float, member: str) -> None:
        self.queues.setdefault(key, {})[member] = score

    def zrem(self, key: Any, member: str) -> None:
        _drop(self.queues, key, member)

    def zscore(self, key: Any, member: str) -> int | None:
        return self.queues.get(key, {}).get(member)

    def ztrim(self, key: Any, least: int, most: int) -> None:
        entries = self.zall(key)
        for number, member in enumerate(reversed(entries)):
            if number >= most or self.queues[key][member] <= least:
                self.zrem(key, member)

    def milliseconds(self) -> int:
        return 0

    def zlast(self, key: Any) -> float | None:
        return max(self.queues.get(key, {}).values(), default=None)

    def zpopmin(self, key: Any) -> str | None:
        waiting = self.queues.get(key)
        if not waiting:
            return None
        first = min(waiting, key=lambda member: (waiting[member], member))
        self.zrem(key, first)
        return first

    def zall(self, key: Any) -> list[str]:
        waiting = self.queues.get(key, {})
        return sorted(waiting, key=lambda member: (waiting[member], member))

    def publish(self, channel: str, message: str) -> int:
        known = (channel in self.subscribed) + (channel in self.patterns)
        if known:
            self.published.append((channel, message))
        return known

    def numsub(self, channel: str) -> int | None:
        return int(channel in self.subscribed)

    def run_id(self) -> str | None:
        return self.number


def _drop(kind: dict[Any, dict[str, Any]], key: Any, member: str) -> None:
    members = kind.get(key, {})
    members.pop(member, None)
    if not members:
        kind.pop(key, None)

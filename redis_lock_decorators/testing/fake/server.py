"""An in-memory Redis server in virtual time, with the few commands that the flows send."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from redis.exceptions import ResponseError

from redis_lock_decorators.testing.fake.clock import EPOCH
from redis_lock_decorators.testing.fake.commands import Commands, seconds_of
from redis_lock_decorators.testing.fake.script_calls import BY_SHA, ScriptCalls, as_bytes

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
#: The name of a pipeline of commands, each a tuple.
TOGETHER = "TOGETHER"


class ServerClock(Protocol):
    """The clock of a server, in seconds."""

    @property
    def now(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class ReplyParser(list[Any]):
    """The replies to a pipeline of commands; an error reply is an item."""


class SimulatedServer:
    """One server, or a cluster that acts as one but refuses scripts over several slots.

    Attributes:
        stepped: seconds by which its clock was set forward; keys expire by it, as in Redis.
        is_slot_moving: its slots are migrating, so no script may touch several keys.
        replicas: the number of connected replicas.
        loaded: the SHA-1 digests of the loaded scripts.
        writes: how often each key has changed, for WATCH.
        deleted: keys deleted by a command: (key, value).
        extended: keys whose time to live a command has prolonged: (key, value).
        renewed: keys renewed, even if their lease was not changed: (key, value).
        subscribers: the subscribers by channel: functions called with each message.
        spies: the subscribers to all channels: functions called with channel and message.
        run_id: the run id of the server, as in INFO; None if INFO is not permitted.
    """

    def __init__(
        self, clock: ServerClock, *, cluster: bool = False, natives: Iterable[str] = ()
    ) -> None:
        self.clock = clock
        self.cluster = cluster
        self.loaded = set(BY_SHA)
        self.writes: Counter[bytes] = Counter()
        self.deleted: list[tuple[bytes, str]] = []
        self.extended: list[tuple[bytes, str]] = []
        self.renewed: list[tuple[bytes, str]] = []
        self.stepped = 0.0
        self.replicas = 0
        self.is_slot_moving = False
        self.subscribers: dict[str, list[Callable[[str], object]]] = {}
        self.spies: list[Callable[[str, str], object]] = []
        self.run_id: str | None = f"{id(self):040x}"
        self._stored: dict[bytes, tuple[bytes | dict[str, Any], float]] = {}
        self._commands = Commands(self)
        calls = ScriptCalls(self, self._commands)
        self._handlers: dict[str, Callable[..., Any]] = {
            "EVALSHA": calls.by_sha,
            "EVAL": calls.by_text,
            "SET": self._set,
            "GET": self._get,
            "DEL": self._del,
            "EXISTS": lambda key: int(self._any(key) is not None),
            "HDEL": self._hdel,
            "PEXPIRE": self._commands.pexpire,
            "ZADD": self._commands.zadd,
            "ZREMRANGEBYSCORE": lambda key, _, most: self._commands.ztrim(key, most, sys.maxsize),
            "ZSCORE": self._zscore,
            "ZRANGE": lambda key, _, last: [*map(as_bytes, self._commands.zall(key)[: last + 1])],
            "PUBLISH": lambda channel, message: self.publish(channel.decode(), message),
            "PUBSUB": lambda _, channel: [channel, self.numsub(channel.decode())],
            "WATCH": self._watch,
            "EXEC": self._exec,
            "WAIT": self._wait,
            "FLUSHALL": self.flush,
            "LPUSH": lambda key, *values: len(values),  # no other process reads lists here
            TOGETHER: self._together,
        }
        self._handlers.update(dict.fromkeys(natives, self._delete_if))

    def run(self, command: tuple[Any, ...]) -> Any:
        """Run a command now; an error that the server replies with is raised."""
        name, *arguments = command
        if name not in self._handlers:
            raise ResponseError(f"unknown command '{name}', with args beginning with: ")
        return self._handlers[name](*arguments)

    def put(self, key: bytes, value: str, seconds: float = math.inf) -> None:
        """Store a value, like another program."""
        self._stored[key] = (as_bytes(value), self._now() + seconds)
        self.writes[key] += 1

    def drop(self, key: bytes) -> None:
        """Delete a key, like an administrator."""
        self._stored.pop(key, None)
        self.writes[key] += 1

    def flush(self) -> bytes:
        """Delete all keys, like FLUSHALL or a failover to an empty replica."""
        for key in list(self._stored):
            self.drop(key)
        return b"OK"

    def value(self, key: bytes) -> str | None:
        """The value of a key."""
        stored = self._get(key)
        return None if stored is None else stored.decode(errors="surrogateescape")

    def found(self, key: bytes) -> Any:
        """The value of a key; 0 if it contains another type of data."""
        return 0 if isinstance(self._any(key), dict) else self.value(key)

    def left(self, key: bytes) -> float:
        """Remaining seconds of a key, 0 if it does not exist."""
        return self._stored[key][1] - self._now() if self._any(key) is not None else 0.0

    def members(self, key: bytes) -> dict[str, Any]:
        """The fields of a hash, or the entries of a queue with their scores."""
        return dict(self._any(key) or {})

    def publish(self, channel: str, message: str) -> int:
        """Send a message to all subscribers; returns their number."""
        subscribers = list(self.subscribers.get(channel, ()))
        for receive in subscribers:
            receive(message)
        for spy in list(self.spies):
            spy(channel, message)
        return len(subscribers) + len(self.spies)

    def numsub(self, channel: str) -> int:
        """The number of subscribers of a channel, without patterns."""
        return len(self.subscribers.get(channel, ()))

    def time(self) -> int:
        """The server's clock, in microseconds of Unix time."""
        return EPOCH + round(self._now() * 1_000_000)

    def end(self, key: bytes) -> int:
        """When a key expires, in Unix milliseconds; -1 if never."""
        end = self._stored[key][1]
        return -1 if end == math.inf else EPOCH // 1000 + round(end * 1000)

    def _now(self) -> float:
        return self.clock.now + self.stepped

    def _any(self, key: bytes) -> Any:
        value, end = self._stored.get(key, (None, math.inf))
        if end <= self._now():
            self.drop(key)
            return None
        return value

    def _get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._any(key)
        if isinstance(value, dict):
            raise ResponseError(WRONG_TYPE)
        return value

    def _hget(self, key: bytes, field: str) -> str | None:
        value: dict[str, str] | None = self._any(key)
        if isinstance(value, bytes):
            raise ResponseError(WRONG_TYPE)
        return None if value is None else value.get(field)

    def _hdel(self, key: bytes, *fields: str) -> int:
        found = self._any(key) or {}
        had = [field for field in fields if found.pop(field, None) is not None]
        if had and not found:
            self.drop(key)
        return len(had)

    def _zscore(self, key: bytes, member: str) -> bytes | None:
        found = self._hget(key, member)
        return None if found is None else as_bytes(str(found))

    def _pttl(self, key: bytes) -> int:
        """As in Redis: -1 is no expiry, -2 is no key."""
        if self._any(key) is None:
            return -2
        left = self.left(key)
        return -1 if left == math.inf else int(left * 1000)

    def _set(self, key: bytes, value: str, *options: Any) -> bytes | None:
        *condition, px, milliseconds = options
        assert px == "PX"
        if condition == ["NX"] and self._any(key) is not None:
            return None
        self.put(key, value, seconds_of(milliseconds))
        return b"OK"

    def _del(self, key: bytes) -> int:
        value = self.value(key)
        if value is None:
            return 0
        self.deleted.append((key, value))
        self.drop(key)
        return 1

    def _watch(self, key: bytes, seen: dict[bytes, int]) -> bytes | None:
        value = self._get(key)  # first, because expiry counts as a change
        seen[key] = self.writes[key]
        return value

    def _exec(self, seen: dict[bytes, int], *commands: tuple[Any, ...]) -> Any:
        for key, writes in seen.items():
            self._get(key)  # first, because expiry counts as a change
            if self.writes[key] != writes:
                return None
        return [self.run(command) for command in commands]

    def _delete_if(self, key: bytes, *condition: str) -> int:
        return self._del(key) if self.value(key) == condition[-1] else 0

    def _wait(self, wanted: int, milliseconds: int) -> int:
        assert milliseconds > 0, "WAIT would block without limit"
        if self.replicas < wanted:
            self.clock.advance(milliseconds / 1000)
        return self.replicas

    def _together(self, *commands: tuple[Any, ...]) -> ReplyParser:
        replies = ReplyParser()
        for command in commands:
            try:
                replies.append(self.run(command))
            except ResponseError as error:
                replies.append(error)
        return replies

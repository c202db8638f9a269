"""An in-memory Redis server in virtual time, with the few commands that the flows send."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from model.scripts import Scripts
from redis.exceptions import NoScriptError, ResponseError, TryAgainError

from redis_lock_decorators import _lua
from redis_lock_decorators._rules.keys import slot_of
from support.clock import Clock
from support.simulated_commands import Commands, seconds_of

VERBS = (
    *("acquire", "release", "extend", "renew", "min_hold"),
    *("acquire_fenced", "settle", "time_left", "adjust"),
    *("enqueue", "enter", "cancel", "recheck", "unlock", "force"),
)
BY_SHA = {_lua.script(verb).sha: verb for verb in VERBS}
BY_TEXT = {_lua.script(verb).text: verb for verb in VERBS}
#: The server's clock when the monotonic clock is 0, in microseconds.
EPOCH = 1_700_000_000_000_000
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
#: The name of a pipeline of commands, each a tuple.
TOGETHER = "TOGETHER"


class ReplyParser(list[Any]):
    """The replies to a pipeline of commands; an error reply is an item."""


class SimulatedServer:
    """One server, or a cluster that acts as one but refuses scripts over several slots.

    Attributes:
        stepped: seconds by which its clock was set forward; keys expire by it, as in Redis.
        is_torn: its slots are migrating, so no script may touch several keys.
        replicas: the number of connected replicas.
        loaded: the SHA-1 digests of the loaded scripts.
        writes: how often each key has changed, for WATCH.
        deleted: keys deleted by a command: (key, value).
        extended: keys extended by a command: (key, value).
        renewed: keys renewed, even if their lease was not changed: (key, value).
        subscribers: the subscribers by channel: functions called with each message.
        spies: the subscribers to all channels: functions called with channel and message.
        run_id: the run id of the server, as in INFO; None if INFO is not permitted.
    """

    def __init__(self, clock: Clock, *, cluster: bool = False, natives: Iterable[str] = ()) -> None:
        self.clock = clock
        self.cluster = cluster
        self.loaded = set(BY_SHA)
        self.writes: Counter[bytes] = Counter()
        self.deleted: list[tuple[bytes, str]] = []
        self.extended: list[tuple[bytes, str]] = []
        self.renewed: list[tuple[bytes, str]] = []
        self.stepped = 0.0
        self.replicas = 0
        self.is_torn = False
        self.subscribers: dict[str, list[Callable[[str], object]]] = {}
        self.spies: list[Callable[[str, str], object]] = []
        self.run_id: str | None = f"{id(self):040x}"
        self._stored: dict[bytes, tuple[bytes | dict[str, Any], float]] = {}
        scripts = Scripts(Commands(self))
        self._verbs: dict[str, Callable[..., Any]] = {
            "acquire": self._acquire,
            "release": scripts.release,
            "enqueue": scripts.enqueue,
            "enter": scripts.enter,
            "min_hold": scripts.min_hold,
            "cancel": scripts.cancel,
            "recheck": scripts.recheck,
            "force": scripts.force,
            "extend": self._extend,
            "renew": self._renew,
            "acquire_fenced": self._acquire_fenced,
            "settle": self._settle,
            "time_left": self._left,
            "adjust": self._adjust,
            "unlock": self._unlock,
        }
        self._handlers: dict[str, Callable[..., Any]] = {
            "EVALSHA": self._evalsha,
            "EVAL": self._eval,
            "SET": self._set,
            "GET": self._get,
            "DEL": self._del,
            "EXISTS": lambda key: int(self._any(key) is not None),
            "HDEL": self._hdel,
            "PEXPIRE": self._pexpire,
            "ZSCORE": self._zscore,
            "PUBLISH": lambda channel, message: self.publish(channel.decode(), message),
            "PUBSUB": lambda _, channel: [channel, self.numsub(channel.decode())],
            "WATCH": self._watch,
            "EXEC": self._exec,
            "WAIT": self._wait,
            "FLUSHALL": self.flush,
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
        self._stored[key] = (_bytes(value), self._now() + seconds)
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
        return None if found is None else _bytes(str(found))

    def _pttl(self, key: bytes) -> int:
        """As in Redis: -1 is no expiry, -2 is no key."""
        if self._any(key) is None:
            return -2
        left = self.left(key)
        return -1 if left == math.inf else int(left * 1000)

    def _set(self, key: bytes, value: str, *options: Any) -> bytes | None:
        *condition, px, milliseconds = options
        assert px == "PX"
        if condition == ["NX"] and self._get(key) is not None:
            return None
        self.put(key, value, seconds_of(milliseconds))
        return b"OK"

    def _pexpire(self, key: bytes, milliseconds: int) -> int:
        assert self._any(key) is None, "PEXPIRE is only sent as a write that changes nothing"
        return 0

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

    def _evalsha(self, sha: bytes, *arguments: Any) -> Any:
        if sha not in self.loaded:
            raise NoScriptError("No matching script. Please use EVAL.")
        return self._script(BY_SHA[sha], *arguments)

    def _eval(self, text: bytes, *arguments: Any) -> Any:
        verb = BY_TEXT[text]
        self.loaded.add(_lua.script(verb).sha)
        return self._script(verb, *arguments)

    def _script(self, verb: str, count: int, *arguments: Any) -> Any:
        keys, (identifier, serial, *details) = arguments[:count], arguments[count:]
        if self.cluster and len({slot_of(key) for key in keys}) > 1:
            raise ResponseError("CROSSSLOT Keys in request don't hash to the same slot")
        if self.is_torn and count > 1:
            raise TryAgainError("Multiple keys request during rehashing of slot")
        mark = _bytes(f"{identifier}:{serial}")
        return _encoded(self._verbs[verb](mark, keys, identifier, *details))

    def _not_held(self, keys: Any, identifier: str) -> list[bytes]:
        return [key for key in keys if self.value(key) != identifier]

    def _acquire(
        self, mark: bytes, keys: Any, identifier: str, milliseconds: int, mode: int = 0
    ) -> Any:
        if mode == 3:
            keys = keys[:-1]
        refusal = self._refusal(mark, keys, "" if mode == 2 else identifier, len(keys) > 1)
        for key in keys if refusal is None else ():
            self._lengthen(key, identifier, milliseconds)
            self.writes[key] += 1  # also if the lease is long enough
        if mode != 1:
            return refusal or mark
        return [*(refusal or [mark]), str(self.time() // 1000)]

    def _acquire_fenced(
        self, mark: bytes, keys: Any, identifier: str, milliseconds: int, kept: int
    ) -> Any:
        half = len(keys) // 2
        locks, numbers = keys[:half], keys[half : 2 * half]
        refusal = self._refusal(mark, locks, identifier, True)
        if refusal is not None:
            return refusal
        fence = max(int(self._hget(key, "fence") or 0) for key in numbers)
        is_new = any(self._hget(key, "of") != identifier for key in numbers)
        if is_new or any(self._get(key) is None for key in locks):
            fence = max(fence + 1, self.time())
        for key in numbers:
            fields = {**(self._any(key) or {}), "fence": str(fence), "of": identifier}
            self._stored[key] = (fields, self._now() + seconds_of(kept))
            self.writes[key] += 1
        for key in locks:
            self._lengthen(key, identifier, milliseconds)
        return [mark, fence]

    def _refusal(
        self, mark: bytes, keys: Any, identifier: str, is_placed: bool
    ) -> list[Any] | None:
        for key in self._not_held(keys, identifier):
            if self._get(key) is not None:
                place = [keys.index(key) + 1] if is_placed else []
                return [mark, self._get(key), self._pttl(key), *place]
        return None

    def _extend(self, mark: bytes, keys: Any, identifier: str, milliseconds: int) -> Any:
        for key in keys:
            if self.found(key) != identifier:
                return [mark, b"" if self.found(key) is None else self.found(key)]
        for key in keys:
            self._lengthen(key, identifier, milliseconds)
            self.extended.append((key, identifier))
        return mark

    def _renew(self, mark: bytes, keys: Any, _: str, *leases: Any) -> Any:
        assert len(leases) == 2 * len(keys)
        lost: list[Any] = []
        for place, key in enumerate(keys):
            identifier, milliseconds = leases[2 * place : 2 * place + 2]
            found = self._any(key)
            if isinstance(found, dict):
                lost += (place, 0)
            elif self.value(key) == identifier:
                self._lengthen(key, identifier, milliseconds)
                self.renewed.append((key, identifier))
            else:
                lost += (place, found or b"")
        return [mark, *lost] if lost else mark

    def _settle(
        self, mark: bytes, keys: Any, identifier: str, last: str, endless: int, latest: int
    ) -> Any:
        (key, *others), holder = keys, self.value(keys[0])
        if holder == last and holder != identifier:
            return mark
        if holder != identifier:
            return [mark, self._get(key) or b""]
        if self._end(key) > latest:
            return [mark, holder, self._end(key)]
        if others and (self._hget(others[1], "granted") or "").split("|")[1:2] == [holder]:
            self._hdel(others[1], "granted")
        if endless == 1 or self._end(key) == -1:
            self.put(key, last)
        elif last != holder:
            self.put(key, last, max(1, self._pttl(key)) / 1000)
        return mark

    def _left(self, mark: bytes, keys: Any, identifier: str, from_master: int = 0) -> Any:
        (key,) = keys
        if self.value(key) != identifier:
            return [mark, self._get(key)]
        return [mark, str(self._end(key)), self._pttl(key)]

    def _adjust(
        self, mark: bytes, keys: Any, identifier: str, seen: int, wanted: int, latest: int
    ) -> Any:
        (key,) = keys
        if self.value(key) != identifier:
            return [mark, self._get(key) or b""]
        if self._end(key) == seen and self.time() / 1000 <= latest:
            self.put(key, identifier, (wanted - EPOCH // 1000) / 1000 - self._now())
            return mark
        return [mark, self._get(key), 0 if self._end(key) == wanted else 1]

    def _unlock(self, mark: bytes, keys: Any, identifier: str, rest: int) -> Any:
        (key,), resting = keys, f"{identifier}:rest"
        holder = self.found(key)
        if holder == identifier and rest:
            self.put(key, resting, rest / 1000)
        elif holder == identifier:
            self._del(key)
        elif holder != resting:
            return [mark, b"" if holder is None else holder]
        return mark

    def _end(self, key: bytes) -> int:
        """When a key expires, in Unix milliseconds; -1 if never."""
        end = self._stored[key][1]
        return -1 if end == math.inf else EPOCH // 1000 + round(end * 1000)

    def _lengthen(self, key: bytes, identifier: str, milliseconds: int) -> None:
        if self._pttl(key) != -1 and self._pttl(key) < milliseconds:
            self.put(key, identifier, seconds_of(milliseconds))


def _encoded(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_encoded(item) for item in reply]
    return _bytes(reply) if isinstance(reply, str) else reply


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")

"""A Redis server in memory, in virtual time: the few commands that the flows send."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from redis_lock_decorators import lua
from redis_lock_decorators.rules.keys import slot_of

VERBS = ("acquire", "release", "extend")
BY_SHA = {lua.script(verb).sha: verb for verb in VERBS}
BY_TEXT = {lua.script(verb).text: verb for verb in VERBS}


class Clock:
    """Seconds that pass only when told to, and what is to happen at which of them."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._hooks: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Run ``action`` once the clock shows ``when``."""
        heapq.heappush(self._hooks, (when, next(self._numbers), action))

    def advance(self, seconds: float) -> None:
        """Let time pass; an action on the way may itself take longer than that."""
        end = self.now + seconds
        while self._hooks and self._hooks[0][0] <= end:
            when, _, action = heapq.heappop(self._hooks)
            self.now = max(self.now, when)
            action()
        self.now = max(self.now, end)


class SimulatedServer:
    """One server, or a cluster that looks like one but refuses scripts over several slots.

    Attributes:
        loaded: the SHA-1 sums of the scripts it knows.
        writes: how often each key has changed, for WATCH.
        deleted: what was deleted by a command: (key, value).
        extended: what was given a new lease by a command: (key, value).
    """

    def __init__(self, clock: Clock, *, cluster: bool = False, natives: Iterable[str] = ()) -> None:
        self.clock = clock
        self.cluster = cluster
        self.loaded = set(BY_SHA)
        self.writes: Counter[bytes] = Counter()
        self.deleted: list[tuple[bytes, str]] = []
        self.extended: list[tuple[bytes, str]] = []
        self._stored: dict[bytes, tuple[bytes, float]] = {}
        self._verbs: dict[str, Callable[..., Any]] = {
            "acquire": self._acquire,
            "release": self._release,
            "extend": self._extend,
        }
        self._handlers: dict[str, Callable[..., Any]] = {
            "EVALSHA": self._evalsha,
            "EVAL": self._eval,
            "SET": self._set,
            "GET": self._get,
            "DEL": self._del,
            "WATCH": self._watch,
            "EXEC": self._exec,
        }
        self._handlers.update(dict.fromkeys(natives, self._delete_if))

    def run(self, command: tuple[Any, ...]) -> Any:
        """Run a command now; an error that the server replies with is raised."""
        name, *arguments = command
        if name not in self._handlers:
            raise ResponseError(f"unknown command '{name}', with args beginning with: ")
        return self._handlers[name](*arguments)

    def put(self, key: bytes, value: str, seconds: float = math.inf) -> None:
        """Store a value, as any other program may."""
        self._stored[key] = (_bytes(value), self.clock.now + seconds)
        self.writes[key] += 1

    def drop(self, key: bytes) -> None:
        """Delete a key, as an administrator may."""
        self._stored.pop(key, None)
        self.writes[key] += 1

    def value(self, key: bytes) -> str | None:
        """What a key holds now."""
        stored = self._get(key)
        return None if stored is None else stored.decode(errors="surrogateescape")

    def left(self, key: bytes) -> float:
        """Seconds that a key has to live, 0 if there is none."""
        return self._stored[key][1] - self.clock.now if self._get(key) is not None else 0.0

    def _get(self, key: bytes) -> bytes | None:
        value, end = self._stored.get(key, (None, math.inf))
        if end <= self.clock.now:
            self.drop(key)
            return None
        return value

    def _set(self, key: bytes, value: str, *options: Any) -> bytes | None:
        nx, px, milliseconds = options
        assert (nx, px) == ("NX", "PX")
        if self._get(key) is not None:
            return None
        self.put(key, value, _seconds(milliseconds))
        return b"OK"

    def _del(self, key: bytes) -> int:
        value = self.value(key)
        if value is None:
            return 0
        self.deleted.append((key, value))
        self.drop(key)
        return 1

    def _watch(self, key: bytes, seen: dict[bytes, int]) -> bytes | None:
        value = self._get(key)  # first, for a key that has expired has changed
        seen[key] = self.writes[key]
        return value

    def _exec(self, seen: dict[bytes, int], *command: Any) -> Any:
        key = command[1]
        self._get(key)
        return [self.run(command)] if self.writes[key] == seen[key] else None

    def _delete_if(self, key: bytes, *condition: str) -> int:
        return self._del(key) if self.value(key) == condition[-1] else 0

    def _evalsha(self, sha: bytes, *arguments: Any) -> Any:
        if sha not in self.loaded:
            raise NoScriptError("No matching script. Please use EVAL.")
        return self._script(BY_SHA[sha], *arguments)

    def _eval(self, text: bytes, *arguments: Any) -> Any:
        verb = BY_TEXT[text]
        self.loaded.add(lua.script(verb).sha)
        return self._script(verb, *arguments)

    def _script(self, verb: str, count: int, *arguments: Any) -> Any:
        keys, (identifier, serial, *details) = arguments[:count], arguments[count:]
        if self.cluster and len({slot_of(key) for key in keys}) > 1:
            raise ResponseError("CROSSSLOT Keys in request don't hash to the same slot")
        mark = _bytes(f"{identifier}:{serial}")
        strangers = [key for key in keys if self.value(key) != identifier]
        return self._verbs[verb](mark, keys, identifier, strangers, *details)

    def _acquire(
        self, mark: bytes, keys: Any, identifier: str, strangers: list[bytes], milliseconds: int
    ) -> Any:
        for key in strangers:
            if self._get(key) is not None:
                left = self.left(key)
                return [mark, self._get(key), -1 if left == math.inf else int(left * 1000)]
        for key in keys:
            self._lengthen(key, identifier, _seconds(milliseconds))
        return mark

    def _release(self, mark: bytes, keys: Any, identifier: str, strangers: list[bytes]) -> Any:
        for key in keys:
            if key not in strangers:
                self._del(key)
        others = [self._get(key) for key in strangers]
        return [mark, next(filter(None, others), b"")] if strangers else mark

    def _extend(
        self, mark: bytes, keys: Any, identifier: str, strangers: list[bytes], milliseconds: int
    ) -> Any:
        if strangers:
            return [mark, self._get(strangers[0]) or b""]
        for key in keys:
            self._lengthen(key, identifier, _seconds(milliseconds))
            self.extended.append((key, identifier))
        return mark

    def _lengthen(self, key: bytes, identifier: str, seconds: float) -> None:
        if self.left(key) < seconds:
            self.put(key, identifier, seconds)


def _seconds(milliseconds: object) -> float:
    assert type(milliseconds) is int
    assert milliseconds > 0, "a key must never be made to live for ever or for no time"
    return milliseconds / 1000


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")

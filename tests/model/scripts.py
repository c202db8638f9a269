"""What the scripts of the queue do, step for step in Python, and the least of a server for them.

Keys, identifiers and channels are text. A place in the queue is "channel|identifier|grant".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Protocol

from redis_lock_decorators._lua import KEPT, MOST_NOTED, NOTED


class Redis(Protocol):
    """The commands that the scripts send; a number of milliseconds is a whole number."""

    def get(self, key: Any) -> str | None: ...
    def value(self, key: Any) -> Any: ...
    def set(self, key: Any, value: str, milliseconds: int) -> None: ...
    def pttl(self, key: Any) -> int: ...
    def pexpire(self, key: Any, milliseconds: int) -> None: ...
    def exists(self, key: Any) -> bool: ...
    def delete(self, *keys: Any) -> None: ...
    def hget(self, key: Any, field: str) -> str | None: ...
    def hset(self, key: Any, field: str, value: str) -> None: ...
    def hdel(self, key: Any, field: str) -> None: ...
    def zadd(self, key: Any, score: float, member: str) -> None: ...
    def zrem(self, key: Any, member: str) -> None: ...
    def zscore(self, key: Any, member: str) -> int | None: ...
    def ztrim(self, key: Any, least: int, most: int) -> None: ...
    def milliseconds(self) -> int: ...
    def zlast(self, key: Any) -> float | None: ...
    def zpopmin(self, key: Any) -> str | None: ...
    def zall(self, key: Any) -> list[str]: ...
    def publish(self, channel: str, message: str) -> int: ...
    def numsub(self, channel: str) -> int | None: ...
    def run_id(self) -> str | None: ...


class Scripts:
    """The scripts, each by its verb: the mark of its reply, its keys, then its arguments.

    Attributes:
        most: so many places are passed over in one call.
        most_untold: so many where nobody is found who would go on at once.
    """

    most, most_untold = 300, 3000

    def __init__(self, redis: Any) -> None:
        self.redis: Redis = redis

    def promote(
        self,
        key: Any,
        queue: Any,
        facts: Any,
        releaser: str | None = None,
        alive: str | None = None,
    ) -> None:
        redis = self.redis
        granted = redis.hget(facts, "granted")
        if granted is not None:
            last = parts(granted)
            if last is None or last[1] != releaser:
                redis.hdel(facts, "granted")
            if last is not None and last[1] != releaser and last[0] != alive:
                self.suspect(facts, last[0])
        heard: dict[str, int] = {}
        unheard = passed = 0
        while (place := redis.zpopmin(queue)) is not None:
            found = parts(place)
            channel, identifier, grant = found or ("", "", "")
            if found is not None and not heard.get(channel):
                heard.setdefault(channel, self.hearers(channel))
            if found is None:
                pass
            elif heard[channel] == 0:
                unheard += 1
                if unheard <= 100:
                    self.again(channel, identifier)
            elif redis.hget(facts, f"suspect:{channel}") is not None:
                self.again(channel, identifier)
            else:
                redis.set(key, identifier, int(grant))
                turn = f"turn|{hint(identifier)}|{self.proof(identifier, key)}"
                if redis.publish(channel, turn):
                    redis.hset(facts, "granted", place)
                    redis.pexpire(facts, KEPT)
                    return
                heard[channel] = 0
            passed += 1
            is_stop = passed in (self.most, self.most_untold) and redis.exists(queue)
            if is_stop and (self.stir_last(queue, facts) or passed == self.most_untold):
                redis.delete(key)
                redis.hdel(facts, "granted")
                redis.pexpire(facts, KEPT)
                return
        redis.delete(key, facts)

    def hearers(self, channel: str) -> int:
        found = self.redis.numsub(channel)
        return 1 if found is None else found

    def proof(self, identifier: str, key: Any) -> str:
        run_id = self.redis.run_id()
        return "" if run_id is None else proof(run_id, identifier, key)

    def again(self, channel: str, identifier: str) -> int:
        return self.redis.publish(channel, f"again|{hint(identifier)}")

    def stir(self, places: Sequence[str]) -> bool:
        for place in places:
            found = parts(place)
            if found is None:
                continue
            channel, identifier, _ = found
            if self.hearers(channel) and self.again(channel, identifier):
                return True
        return False

    def stir_last(self, queue: Any, facts: Any) -> bool:
        places = []
        for place in reversed(self.redis.zall(queue)[-100:]):
            channel, *_ = parts(place) or ("",)
            if self.redis.hget(facts, f"suspect:{channel}") is None:
                places.append(place)
        return self.stir(places)

    def suspect(self, facts: Any, channel: str) -> None:
        self.redis.hset(facts, f"suspect:{channel}", "1")
        self.redis.pexpire(facts, KEPT)

    def enqueue(
        self,
        mark: Any,
        keys: Sequence[Any],
        identifier: str,
        lease: int,
        channel: str,
        grant: int,
        ticket: int,
        given_up: str = "",
    ) -> Any:
        redis, (key, queue, facts) = self.redis, keys
        place = f"{channel}|{identifier}|{grant}"
        former = given_up.split("|")[1] if given_up else None
        if former is not None:
            redis.zrem(queue, given_up)
        holder = redis.get(key)
        is_ours = holder is not None and holder in (identifier, former)
        if is_ours or (holder is None and not redis.exists(queue)):
            if holder != identifier or -1 != redis.pttl(key) < lease:
                redis.set(key, identifier, lease)
            redis.zrem(queue, place)
            redis.hdel(facts, "granted")
            return mark
        redis.hdel(facts, f"suspect:{channel}")
        ticket = redis.zscore(queue, place) or ticket
        if ticket == 0:
            ticket = (redis.zlast(queue) or 0) + 1
        redis.zadd(queue, ticket, place)
        redis.pexpire(queue, KEPT)
        if holder is None:
            self.promote(key, queue, facts, alive=channel)
        return [mark, redis.get(key) or "", redis.pttl(key), ticket]

    def enter(self, mark: Any, keys: Sequence[Any], identifier: str, lease: int, place: str) -> Any:
        redis, (key, queue, facts) = self.redis, keys
        holder = redis.get(key)
        if holder != identifier:
            stands = int(redis.zscore(queue, place) is not None)
            return [mark, holder or "", redis.pttl(key), stands]
        if -1 != redis.pttl(key) < lease:
            redis.pexpire(key, lease)
        redis.zrem(queue, place)
        if redis.hget(facts, "granted") == place:
            redis.hdel(facts, "granted")
        return mark

    def cancel(self, mark: Any, keys: Sequence[Any], identifier: str, place: str) -> Any:
        redis, (key, queue, facts) = self.redis, keys
        redis.zrem(queue, place)
        if redis.get(key) == identifier:
            self.promote(key, queue, facts, identifier)
        elif not redis.exists(queue) and redis.hget(facts, "granted") is None:
            redis.delete(facts)
        return mark

    def force(self, mark: Any, keys: Sequence[Any], identifier: str) -> Any:
        redis, (key, queue, facts) = self.redis, keys
        holder = redis.get(key)
        if holder != identifier:
            return [mark, holder or ""]
        if redis.exists(queue):
            self.promote(key, queue, facts, holder)
        else:
            redis.delete(key, facts)
        return mark

    def recheck(self, mark: Any, keys: Sequence[Any], channel: str, *places: str) -> Any:
        redis, (key, queue, facts) = self.redis, keys
        redis.pexpire(queue, KEPT)
        holder = redis.get(key)
        if holder is None:
            self.promote(key, queue, facts)
        elif not places and holder.endswith(":rest"):
            self.stir(redis.zall(queue)[:100])
        heard = redis.numsub(channel)
        missing = [at for at, place in enumerate(places) if redis.zscore(queue, place) is None]
        return [
            *(mark, redis.get(key) or "", redis.pttl(key)),
            *(-1 if heard is None else heard, *missing),
        ]

    def note_release(
        self, released: Any, releaser: str, is_awaited: bool, is_new: bool = True
    ) -> None:
        now = self.redis.milliseconds()
        self.redis.zadd(released, max(now, (self.redis.zlast(released) or 0) + 0.001), releaser)
        self.redis.ztrim(released, -1 if is_awaited else now - NOTED, MOST_NOTED)
        if is_new:
            self.redis.pexpire(released, NOTED)

    def was_released(self, released: Any, releaser: str) -> bool:
        return self.redis.zscore(released, releaser) is not None

    def min_hold(
        self,
        mark: Any,
        keys: Sequence[Any],
        identifier: str,
        milliseconds: int,
        releaser: str | None = None,
        noted: int = 0,
    ) -> Any:
        redis, count, stranger = self.redis, len(keys) // 4, None
        resting, releaser = f"{identifier}:rest", releaser or identifier
        for at in range(count):
            key, queue, facts, released = keys[at::count]
            holder = redis.value(key)
            if holder == identifier:
                redis.set(key, resting, milliseconds)
                redis.hdel(facts, "granted")
                places = redis.zall(queue)[:100]
                if places or noted:
                    self.note_release(released, releaser, bool(places))
                self.stir(places)
            elif holder != resting and not self.was_released(released, releaser):
                stranger = (stranger or "") if holder is None else holder
        return mark if stranger is None else [mark, stranger]

    def release(
        self,
        mark: Any,
        keys: Sequence[Any],
        identifier: str,
        releaser: str | None = None,
        noted: int = 0,
    ) -> Any:
        redis, count, stranger = self.redis, len(keys) // 4, None
        resting, releaser = f"{identifier}:rest", releaser or identifier
        for at in range(count):
            key, queue, facts, released = keys[at::count]
            holder = redis.value(key)
            if holder != identifier:
                if holder == resting or not self.was_released(released, releaser):
                    stranger = (stranger or "") if holder is None else holder
            else:
                is_awaited, is_noted = redis.exists(queue), redis.exists(released)
                if is_awaited:
                    self.promote(key, queue, facts, identifier)
                else:
                    redis.delete(key, facts)
                if is_awaited or is_noted or noted:
                    is_new = is_awaited or bool(noted)
                    self.note_release(released, releaser, is_awaited, is_new)
        return mark if stranger is None else [mark, stranger]


class Memory:
    """A server in memory, where time stands still: keys live as long as they were last told to.

    Attributes:
        hearers: the channels that somebody listens to.
        spies: the channels that only a pattern of somebody matches.
        published: what was published: (channel, message).
        number: the process of the server; None if it does not tell.
    """

    def __init__(self) -> None:
        self.strings: dict[Any, tuple[str, int]] = {}
        self.queues: dict[Any, dict[str, int]] = {}
        self.hashes: dict[Any, dict[str, str]] = {}
        self.hearers: set[str] = set()
        self.spies: set[str] = set()
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
        places = self.zall(key)
        for number, member in enumerate(reversed(places)):
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
        heard = (channel in self.hearers) + (channel in self.spies)
        if heard:
            self.published.append((channel, message))
        return heard

    def numsub(self, channel: str) -> int | None:
        return int(channel in self.hearers)

    def run_id(self) -> str | None:
        return self.number


def parts(place: str) -> tuple[str, str, str] | None:
    """The channel, the identifier and the grant of a place; None for what is no place."""
    found = re.fullmatch(r"([^|]+)\|([^|]+)\|([1-9][0-9]{0,4})", place)
    return None if found is None else (found[1], found[2], found[3])


def _drop(kind: dict[Any, dict[str, Any]], key: Any, member: str) -> None:
    members = kind.get(key, {})
    members.pop(member, None)
    if not members:
        kind.pop(key, None)


def hint(identifier: str) -> str:
    """What a place is called in words."""
    return hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()


def proof(run_id: str, identifier: str, key: Any) -> str:
    """What only the server and the waiter can say of a grant."""
    name = key if isinstance(key, bytes) else str(key).encode()
    data = f"{run_id}|{identifier}|".encode() + name
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()

"""The queue scripts in Python, step by step.

Keys, identifiers and channels are text. A queue entry is "channel|identifier|grant".
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from redis_lock_decorators._flow.identifiers import GOT_LAST
from redis_lock_decorators._lua import COMPANION_TTL, MOST_RECORDS, RECORD_TTL


class Redis(Protocol):
    """The commands that the scripts use; milliseconds are integers."""

    def get(self, key: Any) -> str | None: ...
    def value(self, key: Any) -> Any: ...
    def set(self, key: Any, value: str, milliseconds: int) -> None: ...
    def pttl(self, key: Any) -> int: ...
    def pexpire(self, key: Any, milliseconds: int) -> object: ...
    def exists(self, key: Any) -> bool: ...
    def delete(self, *keys: Any) -> None: ...
    def hget(self, key: Any, field: str) -> str | None: ...
    def hset(self, key: Any, field: str, value: str) -> None: ...
    def hdel(self, key: Any, field: str) -> object: ...
    def zadd(self, key: Any, score: float, member: str) -> None: ...
    def zrem(self, key: Any, member: str) -> object: ...
    def zscore(self, key: Any, member: str) -> int | None: ...
    def ztrim(self, key: Any, least: int, most: int) -> None: ...
    def milliseconds(self) -> int: ...
    def zlast(self, key: Any) -> Any: ...
    def zpopmin(self, key: Any) -> str | None: ...
    def zall(self, key: Any) -> list[str]: ...
    def publish(self, channel: str, message: str) -> int: ...
    def numsub(self, channel: str) -> int | None: ...
    def run_id(self) -> str | None: ...


class Scripts:
    """The scripts, a method each: the first item of the reply, the keys, then the arguments.

    Attributes:
        most: at most so many entries are skipped in one call.
        most_unreached: at most so many if no waiter is found that would continue immediately.
    """

    most, most_unreached = 300, 3000

    def __init__(self, redis: Any) -> None:
        self.redis: Redis = redis

    def grant_next(
        self,
        key: Any,
        queue: Any,
        waiters: Any,
        releaser: str | None = None,
        alive: str | None = None,
    ) -> None:
        redis = self.redis
        granted = redis.hget(waiters, "granted")
        if granted is not None:
            last = parts(granted)
            if last is None or last[1] != releaser:
                redis.hdel(waiters, "granted")
            if last is not None and last[1] != releaser and last[0] != alive:
                self.suspect(waiters, last[0])
        known: dict[str, int] = {}
        unreached = skipped = 0
        while (entry := redis.zpopmin(queue)) is not None:
            found = parts(entry)
            channel, identifier, grant = found or ("", "", "")
            if found is not None and not known.get(channel):
                known.setdefault(channel, self.subscribers(channel))
            if found is None:
                pass
            elif known[channel] == 0:
                unreached += 1
                if unreached <= 100:
                    self.again(channel, identifier)
            elif redis.hget(waiters, f"suspect:{channel}") is not None:
                self.again(channel, identifier)
            else:
                redis.set(key, identifier, int(grant))
                message = f"turn|{hint(identifier)}|{self.proof(identifier, key)}"
                if redis.publish(channel, message):
                    redis.hset(waiters, "granted", entry)
                    redis.pexpire(waiters, COMPANION_TTL)
                    return
                known[channel] = 0
            skipped += 1
            is_stop = skipped in (self.most, self.most_unreached) and redis.exists(queue)
            if is_stop and (self.wake_last(queue, waiters) or skipped == self.most_unreached):
                redis.delete(key)
                redis.hdel(waiters, "granted")
                redis.pexpire(waiters, COMPANION_TTL)
                return
        redis.delete(key, waiters)

    def subscribers(self, channel: str) -> int:
        found = self.redis.numsub(channel)
        return 1 if found is None else found

    def proof(self, identifier: str, key: Any) -> str:
        run_id = self.redis.run_id()
        return "" if run_id is None else proof(run_id, identifier, key)

    def again(self, channel: str, identifier: str) -> int:
        return self.redis.publish(channel, f"again|{hint(identifier)}")

    def wake_one(self, entries: Sequence[str]) -> bool:
        for entry in entries:
            found = parts(entry)
            if found is None:
                continue
            channel, identifier, _ = found
            if self.subscribers(channel) and self.again(channel, identifier):
                return True
        return False

    def wake_last(self, queue: Any, waiters: Any) -> bool:
        entries = []
        for entry in reversed(self.redis.zall(queue)[-100:]):
            channel, *_ = parts(entry) or ("",)
            if self.redis.hget(waiters, f"suspect:{channel}") is None:
                entries.append(entry)
        return self.wake_one(entries)

    def suspect(self, waiters: Any, channel: str) -> None:
        self.redis.hset(waiters, f"suspect:{channel}", "1")
        self.redis.pexpire(waiters, COMPANION_TTL)

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
        redis, (key, queue, waiters) = self.redis, keys
        entry = f"{channel}|{identifier}|{grant}"
        former = given_up.split("|")[1] if given_up else None
        if former is not None:
            redis.zrem(queue, given_up)
        holder = redis.get(key)
        is_ours = holder is not None and holder in (identifier, former)
        if is_ours or (holder is None and not redis.exists(queue)):
            if holder != identifier or -1 != redis.pttl(key) < lease:
                redis.set(key, identifier, lease)
            redis.zrem(queue, entry)
            redis.hdel(waiters, "granted")
            return mark
        redis.hdel(waiters, f"suspect:{channel}")
        ticket = redis.zscore(queue, entry) or ticket
        if ticket == 0:
            ticket = (redis.zlast(queue) or 0) + 1
        redis.zadd(queue, ticket, entry)
        redis.pexpire(queue, COMPANION_TTL)
        if holder is None:
            self.grant_next(key, queue, waiters, alive=channel)
        return [mark, redis.get(key) or "", redis.pttl(key), ticket]

    def enter(self, mark: Any, keys: Sequence[Any], identifier: str, lease: int, entry: str) -> Any:
        redis, (key, queue, waiters) = self.redis, keys
        holder = redis.get(key)
        if holder != identifier:
            is_queued = int(redis.zscore(queue, entry) is not None)
            return [mark, holder or "", redis.pttl(key), is_queued]
        if -1 != redis.pttl(key) < lease:
            redis.pexpire(key, lease)
        redis.zrem(queue, entry)
        if redis.hget(waiters, "granted") == entry:
            redis.hdel(waiters, "granted")
        return mark

    def cancel(self, mark: Any, keys: Sequence[Any], identifier: str, entry: str) -> Any:
        redis, (key, queue, waiters) = self.redis, keys
        redis.zrem(queue, entry)
        if redis.get(key) == identifier:
            self.grant_next(key, queue, waiters, identifier)
        elif not redis.exists(queue) and redis.hget(waiters, "granted") is None:
            redis.delete(waiters)
        return mark

    def force(self, mark: Any, keys: Sequence[Any], identifier: str) -> Any:
        redis, (key, queue, waiters) = self.redis, keys
        holder = redis.get(key)
        if holder != identifier:
            return [mark, holder or ""]
        if redis.exists(queue):
            self.grant_next(key, queue, waiters, holder)
        else:
            redis.delete(key, waiters)
        return mark

    def recheck(self, mark: Any, keys: Sequence[Any], channel: str, *entries: str) -> Any:
        redis, (key, queue, waiters) = self.redis, keys
        redis.zscore(queue, "")  # fails if this is no queue
        redis.pexpire(queue, COMPANION_TTL)
        holder = redis.get(key)
        if holder is None:
            self.grant_next(key, queue, waiters)
        elif not entries and holder.endswith(":rest"):
            self.wake_one(redis.zall(queue)[:100])
        known = redis.numsub(channel)
        missing = [at for at, entry in enumerate(entries) if redis.zscore(queue, entry) is None]
        return [
            *(mark, redis.get(key) or "", redis.pttl(key)),
            *(-1 if known is None else known, *missing),
        ]

    def record_release(
        self,
        released: Any,
        releaser: str,
        is_awaited: bool,
        is_new: bool = True,
        is_shared: bool = False,
    ) -> None:
        now = self.redis.milliseconds()
        if is_shared:
            self.redis.ztrim(released, -1, sys.maxsize)
        self.redis.zadd(released, max(now, (self.redis.zlast(released) or 0) + 0.001), releaser)
        oldest = -1 if is_awaited and not is_shared else now - RECORD_TTL
        self.redis.ztrim(released, oldest, sys.maxsize if is_shared else MOST_RECORDS)
        if is_new:
            self.redis.pexpire(released, RECORD_TTL)

    def _may_be_another(self, released: Any, releaser: str, records: str) -> bool:
        if self.was_released(released, releaser):
            return True
        if records == "shared" or self.was_released(released, GOT_LAST + releaser):
            return False
        first = next(iter(self.redis.zall(released)), "")
        return records == "if own" or (bool(first) and self.redis.zscore(released, first) == -1)

    def was_released(self, released: Any, releaser: str) -> bool:
        return self.redis.zscore(released, releaser) is not None

    def min_hold(
        self,
        mark: Any,
        keys: Sequence[Any],
        identifier: str,
        milliseconds: int,
        releaser: str | None = None,
        records: str = "",
    ) -> Any:
        redis, count = self.redis, len(keys) // 4
        refused: list[Any] = []
        resting, releaser = f"{identifier}:rest", releaser or identifier
        for at in range(count):
            key, queue, waiters, released = keys[at::count]
            holder = redis.value(key)
            if holder == identifier:
                redis.set(key, resting, milliseconds)
                redis.hdel(waiters, "granted")
                entries = redis.zall(queue)[:100]
                if entries or records:
                    self.record_release(released, releaser, bool(entries))
                self.wake_one(entries)
            elif holder != resting and not self.was_released(released, releaser):
                refused += (at, "" if holder is None else holder)
        return [mark, *refused] if refused else mark

    def release(
        self,
        mark: Any,
        keys: Sequence[Any],
        identifier: str,
        releaser: str | None = None,
        records: str = "",
    ) -> Any:
        redis, count = self.redis, len(keys) // 4
        refused: list[Any] = []
        resting, releaser = f"{identifier}:rest", releaser or identifier
        is_shared = records not in ("", "always")
        for at in range(count):
            key, queue, waiters, released = keys[at::count]
            holder = redis.value(key)
            was_released = self.was_released(released, releaser)
            is_other = is_shared and self._may_be_another(released, releaser, records)
            if holder != identifier or is_other:
                if holder == resting or not was_released:
                    refused += (at, "" if holder is None else holder)
            else:
                is_awaited, is_recorded = redis.exists(queue), redis.exists(released)
                if is_awaited:
                    self.grant_next(key, queue, waiters, identifier)
                else:
                    redis.delete(key, waiters)
                if is_awaited or is_recorded or records:
                    is_new = is_awaited or bool(records)
                    self.record_release(released, releaser, is_awaited, is_new, is_shared)
        return [mark, *refused] if refused else mark


def parts(entry: str) -> tuple[str, str, str] | None:
    """The channel, the identifier and the grant of an entry; None if it is malformed."""
    found = re.fullmatch(r"([^|]+)\|([^|]+)\|([1-9][0-9]{0,4})", entry)
    return None if found is None else (found[1], found[2], found[3])


def hint(identifier: str) -> str:
    """The hint of an entry in messages."""
    return hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()


def proof(run_id: str, identifier: str, key: Any) -> str:
    """The proof of a grant, which only the server and the waiter can compute."""
    name = key if isinstance(key, bytes) else str(key).encode()
    data = f"{run_id}|{identifier}|".encode() + name
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()

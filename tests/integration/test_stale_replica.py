"""A demoted master that lacks the locks of the new one refuses to report their holders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from redis.exceptions import RedisError

from redis_lock_decorators import _lua
from redis_lock_decorators._io import error_replies
from redis_lock_decorators.testing import LocalServer

LEASE = 60_000
#: Longer than the lease of any request.
LONG = 10 * LEASE
LOCKS = ("lock", "lock2")
QUEUED = ("lock", "queue", "waiters")
RELEASED = (*QUEUED, "released")
TWO_RELEASED = (*LOCKS, "queue", "queue2", "waiters", "waiters2", "released", "released2")
MINE, ENTRY = "mine", "channel|mine|20000"
ENQUEUE = (LEASE, "channel", 20_000, 0, "")
#: The scripts, each with its keys and the arguments after the request's serial number.
REQUESTS = [
    ("acquire", LOCKS[:1], (LEASE,)),
    ("acquire", LOCKS[:1], (LEASE, 1)),
    ("acquire", LOCKS[:1], (LEASE, 2)),
    ("acquire", LOCKS, (LEASE,)),
    ("acquire_fenced", ("lock", "fence"), (LEASE, LEASE)),
    ("enqueue", QUEUED, ENQUEUE),
    ("enter", QUEUED, (0, ENTRY)),
    ("enter", QUEUED, (LEASE, ENTRY)),
    ("cancel", QUEUED, (ENTRY,)),
    ("recheck", QUEUED, (ENTRY,)),
    ("extend", LOCKS, (LEASE,)),
    ("renew", LOCKS, (MINE, LEASE, MINE, LEASE)),
    ("settle", LOCKS[:1], (MINE, 0, 10**15)),
    ("settle", LOCKS[:1], ("final", 1, 10**15)),
    ("settle", LOCKS[:1], ("final", 1, 1)),
    ("time_left", LOCKS[:1], (1,)),
    ("adjust", LOCKS[:1], (1, 2, 10**15)),
    ("release", RELEASED, (MINE, "always")),
    ("release", TWO_RELEASED, (MINE, "always")),
    ("min_hold", RELEASED, (LEASE, MINE, "always")),
    ("unlock", LOCKS[:1], (0,)),
    ("force", QUEUED, ()),
]
every_request = pytest.mark.parametrize(
    ("verb", "keys", "details"), REQUESTS, ids=[f"{verb}{rest}" for verb, _, rest in REQUESTS]
)
#: What the first lock's key holds, None if it is free, and its time to live.
STATES = [(None, None), (MINE, LEASE // 2), (MINE, LONG), ("final", LONG), ("other", LEASE)]
STATES += [(f"{MINE}:rest", LEASE), ("", LEASE)]


class Stale(NamedTuple):
    client: Any

    def store(self, holder: str | None, left: int | None) -> None:
        self.client.flushall()
        if holder is not None:
            for lock in LOCKS:
                self.client.set(lock, holder, px=left)

    def ask(self, verb: str, keys: tuple[str, ...], details: tuple[Any, ...]) -> Any:
        identifier = "channel" if verb == "recheck" else MINE
        text = _lua.script(verb).text
        return self.client.eval(text, len(keys), *keys, identifier, 1, *details)

    def stored(self) -> list[Any]:
        return [(self.client.get(lock), round(self.client.pttl(lock), -4)) for lock in LOCKS]


@pytest.fixture(scope="module")
def stale() -> Iterator[Stale]:
    with LocalServer() as server, server.client(decode_responses=True) as client:
        yield Stale(client)


@every_request
@pytest.mark.parametrize(("holder", "left"), STATES)
def test_replica_answers_no_request(
    stale: Stale,
    verb: str,
    keys: tuple[str, ...],
    details: tuple[Any, ...],
    holder: str | None,
    left: int | None,
) -> None:
    stale.store(holder, left)
    stale.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(RedisError) as refused:
            stale.ask(verb, keys, details)
    finally:
        stale.client.execute_command("REPLICAOF", "NO", "ONE")

    assert error_replies.is_elsewhere(refused.value)


@every_request
@pytest.mark.parametrize("holder", ["other", "", None])
def test_refusal_of_a_master_changes_nothing(
    stale: Stale,
    verb: str,
    keys: tuple[str, ...],
    details: tuple[Any, ...],
    holder: str | None,
) -> None:
    if holder is None and verb in ("acquire", "acquire_fenced", "enqueue"):
        pytest.skip("this acquires a free lock")
    stale.store(holder, LEASE)
    before = stale.stored()

    stale.ask(verb, keys, details)

    assert stale.stored() == before

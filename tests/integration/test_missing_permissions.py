"""Locks of users who lack some permissions: what is done without, and what fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.fronts import do
from support.leftovers import TIDY_FRONTS
from support.limited import PLACES, Place, started
from support.permitted_uses import (
    DROP_INS,
    EVERY,
    PREFIX,
    QUEUE,
    TRANSACTION,
    drop_in,
    hold,
    skip_unsupported,
    uses_of,
    wait,
)

from redis_lock_decorators import LockLostError
from redis_lock_decorators._io.transport.watch import Watch
from redis_lock_decorators._rules import permissions
from redis_lock_decorators._rules.keys import with_queue

FRONTS = TIDY_FRONTS


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with started(request.param) as found:
        yield found


async def test_waiters_poll_without_permission_for_channels(place, front, name, caplog):
    rules = permissions.rules(PREFIX, uses_of(place, QUEUE))
    with place.user(*[rule for rule in rules if not rule.startswith("&")]):
        await wait()(front, place.client(front), name)

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "fall back to polling" in messages[0]


async def test_waiters_poll_without_permissions_for_a_queue(place, front, name):
    with place.user(*permissions.rules(PREFIX, uses_of(place, EVERY))):
        await wait()(front, place.client(front), name)

    assert place.left(f"{PREFIX}{name}") == 0


@pytest.mark.parametrize("missing", ["+zpopmin", "+hget"])
async def test_waiters_poll_without_permission_to_hand_off(place, front, name, missing):
    allowed = [rule for rule in permissions.rules(PREFIX, uses_of(place, QUEUE)) if rule != missing]
    with place.user(*allowed):
        client = place.client(front)
        lock = front.package.RedisLock(name, client=client, expire=0.5, acquire_time=20)

        async def one() -> None:
            async with front.held(lock):
                await front.sleep(0.1)

        assert await front.elsewhere(one, one) == [None] * 2

    assert place.left(f"{PREFIX}{name}") == 0


@pytest.mark.parametrize("number", [1, 2])
async def test_first_waiter_remains_the_first_without_permission_to_grant(
    place, front, name, number
):
    (key, queue, *_) = with_queue((f"{PREFIX}{name}".encode(),))
    entries = [b"redis-lock:one|a|20000", b"redis-lock:one|b|20000"][:number]
    with place.user(*permissions.rules(PREFIX, uses_of(place, QUEUE))):
        lock = front.package.RedisLock(name, client=place.client(front), expire=30)
        lease = await do(lock.acquire())
        await do(place.client(front).zadd(queue, dict(zip(entries, (1, 2), strict=False))))
        place.change("-set", "-pubsub")
        await do(lease.release())

        assert await do(place.client(front).execute_command("GET", key)) is None
        assert place.members(queue) == entries
        assert place.expires(queue)


@pytest.mark.parametrize("names", [1, 2])
async def test_fence_without_permission_to_expire_leaves_nothing(place, front, name, names):
    rules = permissions.rules(PREFIX, uses_of(place, "fencing"))
    tag = f"{{{name}}}"
    with place.user(*[rule for rule in rules if rule != "+pexpire"]):
        client = place.client(front)
        lock = front.package.RedisLock(
            [f"{tag}{number}" for number in range(names)], client=client, expire=30, fencing=True
        )
        with pytest.raises(redis.exceptions.ResponseError, match="pexpire"):
            await do(lock.acquire())

    assert place.left(f"*{name}*") == 0


@pytest.mark.parametrize("missing", ["+zscore", "+zadd", "+zrange", "+zremrangebyscore"])
async def test_lock_with_a_token_is_released_without_permission_to_record_it(
    place, front, name, missing
):
    rules = permissions.rules(PREFIX, uses_of(place, DROP_INS))
    with place.user(*[rule for rule in rules if rule != missing]):
        lock = drop_in(front)(place.client(front), f"{PREFIX}{name}", timeout=60)
        assert await do(lock.acquire(token=name))
        await do(lock.release())

    assert place.left(f"{PREFIX}{name}") == 0


@pytest.mark.parametrize("missing", [("~",), ("+del",), ("+exists",), ("+hget", "+exists")])
async def test_acquired_lock_is_released_without_other_permissions(place, front, name, missing):
    key = f"{PREFIX}{name}"
    rules = permissions.rules(PREFIX, uses_of(place, EVERY))
    allowed = [rule for rule in rules if not rule.startswith(missing)]
    with place.user(*allowed, f"~{key}"):
        await hold()(front, place.client(front), name)
    await front.sleep(0.01)

    assert place.left(key) == 0


@pytest.mark.parametrize(
    "options",
    [{}, {"wait": "cohort"}, {"wait": "poll"}, {"replicas": 1}, {"fencing": True}],
    ids=str,
)
async def test_lock_that_could_not_be_released_is_not_acquired(place, front, name, options):
    rules = permissions.rules(PREFIX, uses_of(place, QUEUE))
    with place.user(*[rule for rule in rules if rule != "+get"]):
        lock = front.package.RedisLock(name, client=place.client(front), expire=30, **options)
        for _ in range(3):
            with pytest.raises(redis.exceptions.ResponseError, match="permission"):
                await do(lock.acquire())

    assert place.left(f"{PREFIX}{name}") == 0


async def test_only_a_held_lock_is_left_if_releases_become_forbidden(place, front, name):
    with place.user(*permissions.rules(PREFIX, uses_of(place, QUEUE))):
        client = place.client(front)
        make = front.package.RedisLock
        lease = await do(make(name, client=client, expire=30).acquire())
        place.change("-get")
        with pytest.raises(redis.exceptions.ResponseError, match="permission"):
            await do(lease.release())
        for _ in range(3):
            with pytest.raises(redis.exceptions.ResponseError, match="permission"):
                await do(make(f"{name}:2", client=client, expire=30).acquire())

    assert place.left(f"{PREFIX}{name}") == 1
    assert place.left(f"{PREFIX}{name}:2") == 0


@pytest.mark.parametrize("missing", ["+multi", "+exec"])
async def test_lock_is_released_where_transactions_are_forbidden(
    place, front, name, missing, caplog
):
    skip_unsupported(place, TRANSACTION, front)
    uses = uses_of(place, TRANSACTION)
    with place.user(*[rule for rule in permissions.rules(PREFIX, uses) if rule != missing]):
        client = place.client(front)
        for _ in range(2):
            await hold(release_method="transaction")(front, client, name)
            assert place.left(f"{PREFIX}{name}") == 0
        # The client's own connections are as they were.
        assert await do(client.get(f"{PREFIX}{name}")) is None

    assert [record for record in caplog.records if record.levelname != "INFO"] == []


@pytest.mark.parametrize("missing", ["-multi", "-exec"])
async def test_lock_is_released_after_transactions_become_forbidden(
    place, front, name, missing, caplog
):
    skip_unsupported(place, TRANSACTION, front)
    with place.user(*permissions.rules(PREFIX, uses_of(place, TRANSACTION))):
        client = place.client(front)
        await hold(release_method="transaction")(front, client, name)
        place.change(missing)
        for _ in range(2):
            await hold(release_method="transaction")(front, client, name)
            assert place.left(f"{PREFIX}{name}") == 0

    assert [record for record in caplog.records if record.levelname != "INFO"] == []


@pytest.mark.parametrize("missing", ["+multi", "+exec"])
async def test_lock_of_another_holder_is_kept_without_transactions(
    place, front, name, missing, monkeypatch
):
    """The lock is lost between the read of its key and the commands."""
    skip_unsupported(place, TRANSACTION, front)
    key, admin = f"{PREFIX}{name}", place.admins[0]
    holder = Watch.holder

    async def overtaken(self: Any, watched: bytes) -> Any:
        try:
            return await holder(self, watched)
        finally:
            admin.set(key, "another", px=60_000)

    monkeypatch.setattr(Watch, "holder", overtaken)
    uses = uses_of(place, TRANSACTION)
    with place.user(*[rule for rule in permissions.rules(PREFIX, uses) if rule != missing]):
        lock = front.package.RedisLock(
            name, client=place.client(front), release_method="transaction"
        )
        with pytest.raises(LockLostError):
            await do((await do(lock.acquire())).release())

    assert admin.getdel(key) == b"another"


async def test_failed_acquisition_without_scripts_leaves_no_key(place, front, name):
    rules = [rule for rule in permissions.rules(PREFIX) if not rule.startswith("+eval")]
    with place.user(*rules):
        client = place.client(front)
        with pytest.raises(redis.exceptions.NoPermissionError):
            await do(front.package.RedisLock(name, client=client).acquire())
        assert place.left(f"{PREFIX}{name}") == 0

        identifier = await do(front.package.acquire_lock(client, name))
        assert await do(front.package.release_lock(client, name, identifier))
        assert place.left(f"{PREFIX}{name}") == 0


async def test_held_lock_raises_the_error_of_a_server_that_refuses_pttl(place, front, name):
    key = f"{PREFIX}{name}"
    with place.user(*[rule for rule in permissions.rules(PREFIX) if rule != "+pttl"]):
        client = place.client(front)
        lock = front.package.RedisLock(name, client=client, acquire_time=5)
        async with front.held(lock):
            pass
        assert place.left(key) == 0
        await do(client.set(key, "another", px=60_000))
        with pytest.raises(redis.exceptions.ResponseError, match="pttl"):
            await do(lock.acquire())
        await do(client.delete(key))

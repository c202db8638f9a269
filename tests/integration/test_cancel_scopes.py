"""A loss is reported although anyio's scopes cancel the exit again in each turn of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import redis.asyncio as aioredis

from redis_lock_decorators import LockNotOwnedError, redis_lock
from redis_lock_decorators.asyncio import RedisLock
from redis_lock_decorators.asyncio.lock import Lock

anyio = pytest.importorskip("anyio")

#: In how many turns of the loop after the loss the scope is cancelled, one in each run.
TURNS = 6


async def block(name, options, body):
    async with RedisLock(name, **options):
        await body()


async def several(name, options, body):
    async with RedisLock([f"{name}:1", f"{name}:2"], **options):
        await body()


async def by_hand(name, options, body):
    lease = await RedisLock(name, **options).acquire()
    try:
        await body()
    finally:
        await lease.release()


async def function(name, options, body):
    @redis_lock(name, **options)
    async def work():
        await body()

    await work()


async def generator(name, options, body):
    @redis_lock(name, **options)
    async def steps():
        yield 1
        await body()

    async with contextlib.aclosing(steps()) as running:
        async for _ in running:
            pass


async def call(name, options, body):
    await RedisLock(name, **options).call(body)


async def redispy_block(name, options, body):
    async with Lock(options["client"], name, timeout=options["expire"]):
        await body()


async def redispy_by_hand(name, options, body):
    lock = Lock(options["client"], name, timeout=options["expire"])
    await lock.acquire()
    try:
        await body()
    finally:
        await lock.release()


async def move_on_after(work):
    with anyio.move_on_after(60) as scope:
        await work(scope.cancel)


async def fail_after(work):
    with anyio.fail_after(60) as scope:
        await work(scope.cancel)


async def failing_sibling(work):
    fails = asyncio.Event()

    async def sibling():
        await fails.wait()
        raise ValueError

    async with anyio.create_task_group() as group:
        group.start_soon(sibling)
        await work(fails.set)


async def cancelled_group(work):
    async with anyio.create_task_group() as group:
        group.start_soon(work, group.cancel_scope.cancel)


WAYS = [block, several, by_hand, function, generator, call, redispy_block, redispy_by_hand]
WAYS_WITH_ON_LOST = [block, several, by_hand, function, generator, call]
SCOPES = [move_on_after, fail_after, failing_sibling, cancelled_group]


class Loss:
    """A lock that is lost in its block, under a scope that is cancelled then or at the exit.

    Attributes:
        client: a blocking client, which deletes the keys.
        calls: the reasons by which ``on_lost`` was called.
        errors: what the block and the scope raised.
    """

    def __init__(self, server, name, caplog, **options):
        self._server, self._name, self._log, self._options = server, name, caplog, options
        self.client = server.client()
        self.calls, self.errors = [], []
        self.login = {}

    def lose(self):
        self.client.delete(*self.client.keys(f"*{self._name}*"))

    def is_reported(self):
        chains = [error for failure in self.errors for error in _chain(failure)]
        return (
            bool(self.calls)
            or any(isinstance(error, LockNotOwnedError) for error in chains)
            or any("ended before" in record.getMessage() for record in self._log.records)
        )

    async def run(self, way, scope, turns, is_in_block):
        """Lose the lock; cancel the scope after so many turns of the loop."""
        self._log.clear()
        self.calls, self.errors = [], []
        address = {"host": self._server.host, "port": self._server.port, **self.login}
        async with aioredis.Redis(**address) as client:
            options = {"client": client, "expire": 20, "on_lost": self._note, **self._options}

            async def work(cancel):
                async def body():
                    self.lose()
                    _call_after(turns, cancel)
                    if is_in_block:
                        await asyncio.sleep(60)

                try:
                    await way(self._name, options, body)
                except BaseException as error:
                    self.errors.append(error)
                    raise

            try:
                await scope(work)
            except Exception as error:
                self.errors.append(error)
            await self.wait()

    async def wait(self):
        """Wait for what is reported later; by default, for nothing."""

    def _note(self, lease, why):
        self.calls.append(why)

    def check(self, way, scope, turns=range(TURNS)):
        for is_in_block in (True, False):
            for turn in turns:
                asyncio.run(self.run(way, scope, turn, is_in_block))
                assert self.is_reported(), (is_in_block, turn)
                assert len(self.calls) <= 1


def _call_after(turns, function):
    if turns == 0:
        function()
    else:
        asyncio.get_running_loop().call_soon(_call_after, turns - 1, function)


def _chain(error, seen=()):
    """An error, its causes, its contexts, and those of an exception group."""
    if error is None or error in seen:
        return
    yield error
    for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        yield from _chain(other, (*seen, error))


@pytest.fixture
def loss(server, name, caplog):
    return lambda **options: Loss(server, name, caplog, **options)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("way", WAYS)
def test_loss_is_reported_under_a_scope(loss, way, scope):
    loss().check(way, scope)


@pytest.mark.parametrize("way", [block, by_hand])
@pytest.mark.parametrize(
    "options",
    [
        {"wait": "cohort"},
        {"min_hold": 0.001},
        {"fencing": True},
        {"auto_renew": True},
        {"release_method": "transaction"},
        {"release_method": "native"},
    ],
    ids=lambda options: "-".join(map(str, *options.items())),
)
def test_loss_is_reported_with_any_option(loss, way, options):
    loss(**options).check(way, move_on_after)


@pytest.mark.parametrize("lost_key", [1, 2])
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
def test_loss_of_one_of_several_keys_is_reported(loss, method, lost_key):
    lost = loss(release_method=method)
    lost.lose = lambda: lost.client.delete(f"sys:lock:{lost._name}:{lost_key}")
    lost.check(several, move_on_after, range(2 * TURNS))


@pytest.mark.parametrize("way", [block, by_hand])
def test_loss_is_reported_by_a_fallback(loss, name, way):
    """The user may release by another method than the script."""
    lost = loss()
    user = name.replace(":", "-")
    rights = {"enabled": True, "nopass": True, "keys": ["*"], "channels": ["*"]}

    def lose():
        lost.client.acl_setuser(
            user, **rights, categories=["+@all"], commands=["-evalsha", "-eval"]
        )
        Loss.lose(lost)

    lost.login, lost.lose = {"username": user, "password": "any"}, lose
    try:
        for is_in_block in (True, False):
            for turn in range(2 * TURNS):
                lost.client.acl_setuser(
                    user, **rights, categories=["+@all"], commands=["+evalsha", "+eval"]
                )
                asyncio.run(lost.run(way, move_on_after, turn, is_in_block))
                assert lost.is_reported(), (is_in_block, turn)
    finally:
        lost.client.acl_deluser(user)


@pytest.mark.parametrize("way", WAYS_WITH_ON_LOST)
@pytest.mark.parametrize("is_in_block", [True, False], ids=["in block", "in exit"])
def test_loss_is_reported_though_the_reply_arrives_after_the_block(
    frail, name, caplog, way, is_in_block
):
    """The exit of a cancelled scope waits for the reply for a second at most."""
    lost = Loss(frail, name, caplog)

    def lose():
        Loss.lose(lost)
        lost.client.client_pause(1500)

    async def wait():
        by = time.monotonic() + 20
        while not lost.calls and time.monotonic() < by:
            await asyncio.sleep(0.02)

    lost.lose, lost.wait = lose, wait
    asyncio.run(lost.run(way, move_on_after, 0, is_in_block))

    assert lost.calls == ["its key is gone"]


@pytest.mark.parametrize("way", WAYS)
def test_block_without_a_loss_reports_none(loss, way):
    kept = loss()
    kept.lose = lambda: None
    for is_in_block in (True, False):
        for turn in range(TURNS):
            asyncio.run(kept.run(way, move_on_after, turn, is_in_block))
            assert not kept.is_reported(), (is_in_block, turn)
            assert kept.client.keys(f"sys:lock:{kept._name}*") == []

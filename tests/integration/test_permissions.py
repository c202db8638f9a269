"""The published list of permissions is sufficient, and each item on it is needed."""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from support.fronts import LEGACY, do, wrap
from support.leftovers import TIDY_FRONTS
from support.limited import Place

from redis_lock_decorators import LockLostError, LockNameError, LockUnconfirmedError
from redis_lock_decorators._io.transport.watch import Watch
from redis_lock_decorators._rules import permissions
from redis_lock_decorators.inspection import find_locks, lock_status, waiters
from redis_lock_decorators.testing import LocalCluster, LocalServer

FRONTS = TIDY_FRONTS
SECURITY = pathlib.Path(__file__).parents[2] / "SECURITY.rst"
PREFIX = "sys:lock:"
#: A use of a lock: called with a front, a client and the lock's name.
Work = Callable[[Any, Any, str], Awaitable[None]]


def hold(**options: Any) -> Work:
    """Hold a lock whose lease is renewed and extended."""

    async def work(front: Any, client: Any, name: str) -> None:
        lock = front.package.RedisLock(name, client=client, expire=0.4, **options)
        async with front.held(lock) as lease:
            await front.sleep(0.3)
            assert await do(lease.extend(5))
            assert await do(lease.owned())

    return work


def wait(names: int = 1, holds: float = 0.1, **options: Any) -> Work:
    """Hand off a lock between several waiters, one of which gives up."""

    async def work(front: Any, client: Any, name: str) -> None:
        lock_name = [f"{{{name}}}:{number}" for number in range(names)] if names > 1 else name
        lock = front.package.RedisLock(lock_name, client=client, **options)

        async def one() -> None:
            async with front.held(lock):
                await front.sleep(holds)

        async def impatient() -> None:
            await front.sleep(0.02)
            lease = await do(lock.acquire(0.02))
            if lease is not None:
                await do(lease.release())

        assert await front.elsewhere(one, one, impatient, one) == [None] * 4

    return work


def recipe(method: str | None) -> Work:
    """Use the three functions."""

    async def work(front: Any, client: Any, name: str) -> None:
        package = front.package
        identifier = await do(package.acquire_lock(client, name))
        assert await do(package.extend_lock(client, name, identifier, 5))
        assert await do(package.release_lock(client, name, identifier, method=method))
        assert await do(package.release_lock(client, name, identifier, method=method))

    return work


async def release_other_data(front: Any, client: Any, name: str) -> None:
    """Release a key that holds no lock by a transaction."""
    await do(client.hset(f"{PREFIX}{name}", "field", "other data"))
    with pytest.raises(LockNameError, match="other data"):
        await do(front.package.release_lock(client, name, "identifier", method="transaction"))


async def redispy_lock(front: Any, client: Any, name: str) -> None:
    """Use the drop-in for redis-py's ``Lock``."""
    home = "asyncio.lock" if front.name == "asyncio" else "lock"
    kind = importlib.import_module(f"redis_lock_decorators.{home}").Lock
    for timeout in (3, None):
        lock = kind(client, f"{PREFIX}{name}", timeout=timeout)
        assert await do(lock.acquire())
        assert await do(lock.owned())
        if timeout:
            await do(lock.extend(2))
            await do(lock.reacquire())
        await do(lock.release())


async def replicated(front: Any, client: Any, name: str) -> None:
    """Acquire a lock that no replica confirms."""
    lock = front.package.RedisLock(name, client=client, replicas=1)
    with pytest.raises(LockUnconfirmedError):
        await do(lock.acquire(0))


async def repeated(front: Any, client: Any, name: str) -> None:
    """Use a lock of a wrapped client, which resends requests on its own."""
    wrap(client)
    await hold()(front, client, name)


async def inspect(front: Any, client: Any, name: str) -> None:
    """Read the state of a lock."""
    async with front.held(front.package.RedisLock(name, client=client)):
        pages = find_locks(client, name)
        assert [status.lock_name for page in pages for status in page] == [name]
        assert lock_status(client, name).is_held
        assert waiters(client, name) == []


EVERY, QUEUE, FENCES, LEAST, REPLICAS, DROP_INS, TRANSACTION, *OTHERS = permissions.RIGHTS
NATIVE, INSPECTION, REPEATS, CLUSTER = OTHERS
#: For each use: the other uses it includes, and the works that exercise it.
WORKS: dict[str, tuple[tuple[str, ...], list[Work]]] = {
    EVERY: (
        (),
        [
            *(hold(wait="poll"), hold(), wait(wait="poll"), wait(names=2), recipe("script")),
            *(hold(owner_info=True), wait(wait="poll", owner_info=True)),
        ],
    ),
    QUEUE: (
        (),
        [
            *(wait(), wait(wait="cohort"), wait(auto_renew=False), wait(owner_info=True)),
            *(wait(holds=0.6, expire=0.5), wait(wait="cohort", holds=0.6, expire=0.5)),
        ],
    ),
    FENCES: ((QUEUE,), [hold(fencing=True), wait(fencing=True)]),
    LEAST: ((QUEUE,), [hold(min_hold=0.1), wait(min_hold=0.3)]),
    REPLICAS: ((), [replicated]),
    DROP_INS: ((), [redispy_lock]),
    TRANSACTION: (
        (FENCES,),
        [
            *(recipe("transaction"), recipe(None), hold(release_method="transaction")),
            release_other_data,
        ],
    ),
    f"{TRANSACTION}, queued": (
        (TRANSACTION, QUEUE, LEAST),
        [
            wait(release_method="transaction"),
            wait(release_method="transaction", min_hold=0.1),
        ],
    ),
    NATIVE: ((), [recipe("native"), hold(release_method="native")]),
    f"{NATIVE}, queued": ((NATIVE, QUEUE), [wait(release_method="native")]),
    INSPECTION: ((), [inspect]),
    REPEATS: ((), [repeated]),
    CLUSTER: ((), [hold(), hold()]),
}
#: Uses that a cluster does not have.
ALONE = [use for use in WORKS if use.startswith((TRANSACTION, NATIVE))] + [REPEATS]


@pytest.fixture(scope="module", params=["server"] if LEGACY else ["server", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with LocalCluster() if request.param == "cluster" else LocalServer() as found:
        nodes = found.nodes if isinstance(found, LocalCluster) else [found]
        yield Place(nodes, isinstance(found, LocalCluster))


def uses_of(place: Place, use: str) -> tuple[str, ...]:
    """The permissions that a user of this needs."""
    own = (use,) if use in permissions.RIGHTS else ()
    return (*own, *WORKS[use][0], *((CLUSTER,) if place.is_cluster else ()))


async def do_all(front: Any, place: Place, use: str, name: str) -> list[Any]:
    """Run all works of a use concurrently and return their results."""
    client = place.client(front)
    works = [
        partial(work, front, client, f"{name}:{number}")
        for number, work in enumerate(WORKS[use][1])
    ]
    with place.half_moved(f"{PREFIX}{name}:0" if use == CLUSTER else None):
        return await front.elsewhere(*works)


def skip_unsupported(place: Place, use: str, front: Any) -> None:
    if use == INSPECTION and front.name == "asyncio":
        pytest.skip("it takes blocking clients only")
    if use in ALONE if place.is_cluster else use == CLUSTER:
        pytest.skip("this kind of client has no such use")


@pytest.mark.parametrize("use", WORKS)
async def test_listed_permissions_are_sufficient_and_used(place, front, use, name, caplog):
    skip_unsupported(place, use, front)
    uses = uses_of(place, use)
    with place.user(*permissions.rules(PREFIX, uses)):
        results = await do_all(front, place, use, name)

        assert results == [None] * len(results)
        assert place.refused() == []
        used = place.used()

    assert [record.getMessage() for record in caplog.records] == []
    listed = {command.lower() for command in permissions.RIGHTS.get(use, ())} & place.known
    assert listed - used == set()


def droppable() -> list[tuple[str, str]]:
    """Every item of the list, with each use that needs it."""
    return [(use, command) for use in permissions.RIGHTS for command in permissions.RIGHTS[use]]


@pytest.mark.slow
@pytest.mark.parametrize(("use", "command"), droppable())
async def test_without_a_listed_permission_something_is_refused(place, front, use, command, name):
    skip_unsupported(place, use, front)
    if command.lower() not in place.known:
        pytest.skip("the server does not know this command")
    missing = f"+{command.lower()}"
    rules = [rule for rule in permissions.rules(PREFIX, uses_of(place, use)) if rule != missing]
    with place.user(*rules):
        try:
            results = await do_all(front, place, use, name)
        except Exception as error:  # the client itself cannot connect
            results = [error]
        refused = place.refused()

    assert refused or any(isinstance(result, Exception) for result in results)


@pytest.mark.parametrize("missing", ["~", "&"])
async def test_without_the_key_or_channel_pattern_something_is_refused(place, front, missing, name):
    rules = permissions.rules(PREFIX, uses_of(place, QUEUE))
    with place.user(*[rule for rule in rules if not rule.startswith(missing)]):
        await do_all(front, place, QUEUE, name)

        assert place.refused()


@pytest.mark.parametrize("prefix", [PREFIX, "{x}:", "a{b:", "*[x]:", ""])
async def test_one_pattern_suffices_for_every_prefix_and_name(place, front, prefix, name):
    names = [f"{name}{odd}" for odd in ("", "}", "{", "{}", "{7}", "}{", "{{7}}", "~:", "é")]
    allowed = permissions.rules(prefix, uses_of(place, QUEUE))
    with place.user(*allowed):
        client = place.client(front)
        works = [partial(wait(prefix=prefix), front, client, one) for one in names]
        assert await front.elsewhere(*works) == [None] * len(works)

        assert place.refused() == []
    assert place.left(f"*{name}*") == len(names)  # notes of releases


def test_documented_permissions_are_those_of_the_code():
    listed = re.findall(r"(?m)^  \* - (.+)\n    - (.+)$", SECURITY.read_text())

    shown = {
        use.replace("``", ""): tuple(re.findall(r"``([A-Z|]+)``", row)) for use, row in listed[1:]
    }
    assert shown == permissions.RIGHTS


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


@pytest.mark.parametrize("missing", [("~",), ("+del",), ("+exists",), ("+hget", "+exists")])
async def test_acquired_lock_is_released_without_other_permissions(place, front, name, missing):
    key = f"{PREFIX}{name}"
    rules = permissions.rules(PREFIX, uses_of(place, EVERY))
    allowed = [rule for rule in rules if not rule.startswith(missing)]
    with place.user(*allowed, f"~{key}"):
        await hold()(front, place.client(front), name)
    await front.sleep(0.01)

    assert place.left(key) == 0


@pytest.mark.parametrize("strategy", ["queue", "cohort", "poll"])
async def test_lock_that_could_not_be_released_is_not_acquired(place, front, name, strategy):
    rules = permissions.rules(PREFIX, uses_of(place, QUEUE))
    with place.user(*[rule for rule in rules if rule != "+get"]):
        lock = front.package.RedisLock(name, client=place.client(front), wait=strategy, expire=30)
        with pytest.raises(redis.exceptions.ResponseError, match="permission"):
            await do(lock.acquire())

    assert place.left(f"{PREFIX}{name}") == 0


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
        found = await holder(self, watched)
        admin.set(key, "another", px=60_000)
        return found

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

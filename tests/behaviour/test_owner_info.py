"""owner_info: who holds a lock is stored next to it."""

from __future__ import annotations

import json
import logging
import os
import socket
from functools import partial

import pytest
from support.blocks import elsewhere
from support.fronts import TIME, do
from support.lease_forms import until

from redis_lock_decorators import LockTimeoutError, redis_lock
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._rules.owner_info import KIND


@pytest.fixture
def make(front, conn, name):
    """A lock on the test's name, with information about its holder."""

    def lock(lock_name=name, *, owner_info=True, **options):
        return front.package.RedisLock(lock_name, client=conn, owner_info=owner_info, **options)

    return lock


@pytest.fixture(autouse=True)
def warned_again(monkeypatch):
    monkeypatch.setattr("redis_lock_decorators._io.owner_info._next_warning", {})


def own(name):
    """The companion key."""
    return companion(f"sys:lock:{name}".encode(), KIND)


async def test_holder_is_named_while_it_holds_the_lock(front, client, name, make):
    lock, before = make(), TIME.unix()

    async with front.held(lock) as lease:
        found = await do(lock.owner_info())
        stored = json.loads(client.get(own(name)))
        value = client.get(f"sys:lock:{name}")

    assert (found["host"], found["pid"]) == (socket.gethostname(), os.getpid())
    assert isinstance(found["task" if front.name == "asyncio" else "thread"], str)
    assert "test_holder_is_named" in found["function"] or "held" in found["function"]
    assert before - 5 < found["since"] < TIME.unix() + 5
    assert value in (lease.identifier, lease.identifier.encode())
    assert lease.identifier not in json.dumps(stored)
    assert await do(lock.owner_info()) is None
    assert not client.exists(own(name))


async def test_it_lives_as_long_as_the_lease(front, client, name, make):
    async with front.held(make(expire=0.5)) as lease:
        await front.sleep(0.7)
        assert client.exists(own(name))
        await do(lease.extend(20))
        assert abs(client.pttl(own(name)) - client.pttl(f"sys:lock:{name}")) < 500


async def test_decorated_function_is_named(front, client, conn, name):
    decorate = redis_lock(name, client=conn, owner_info=True)

    if front.name == "asyncio":

        @decorate
        async def work():
            return json.loads(client.get(own(name)))
    else:

        @decorate
        def work():
            return json.loads(client.get(own(name)))

    found = await do(work())

    assert found["function"].endswith("test_decorated_function_is_named.<locals>.work")


async def test_error_names_the_holder(front, client, make):
    async with front.held(make()):

        async def other():
            for wait in ("queue", "poll", "cohort"):
                with pytest.raises(LockTimeoutError, match=f":{os.getpid()}, .*, for ") as busy:
                    async with front.held(make(acquire_time=0.1, wait=wait)):
                        pass
                assert busy.value.owner["pid"] == os.getpid()

        await elsewhere(front, other)


async def test_holder_without_information_is_not_named(front, client, make):
    async with front.held(make(owner_info=False)):

        async def other():
            with pytest.raises(LockTimeoutError) as busy:
                async with front.held(make(acquire_time=0)):
                    pass
            assert busy.value.owner is None
            assert await do(make().owner_info()) is None

        await elsewhere(front, other)


@pytest.mark.parametrize("wait", ["queue", "cohort"])
async def test_waiter_is_named_soon_after_it_was_granted_the_lock(front, client, name, make, wait):
    seen = []

    async def waiter():
        async with front.held(make(acquire_time=20, wait=wait, owner_info=fields)):
            seen.append(await do(make().owner_info()))
            await until(front, lambda: "second" in str(client.get(own(name))))

    def fields():
        return {"place": "second"}

    async def first():
        async with front.held(make(wait=wait, owner_info=lambda: {"place": "first"})):
            await front.sleep(0.2)

    async def second():
        await front.sleep(0.05)
        await waiter()

    assert await front.elsewhere(first, second) == [None, None]
    assert (seen[0] or {}).get("place") != "first"
    assert not client.exists(own(name))


async def test_several_names_have_it_each(front, client, name, make):
    names = [f"{{{name}}}:a", f"{{{name}}}:b"]

    async with front.held(make(names)):
        assert [client.exists(own(one)) for one in names] == [1, 1]
    assert [client.exists(own(one)) for one in names] == [0, 0]


async def test_forced_release_removes_it(front, client, name, make):
    lock = make(auto_renew=False)
    lease = await do(lock.acquire())

    assert await do(lock.force_release())

    assert lease is not None
    assert not client.exists(own(name))


async def test_lock_that_is_kept_by_min_hold_has_no_holder(front, client, name, make):
    async with front.held(make(min_hold=1)):
        pass

    assert client.exists(f"sys:lock:{name}")
    assert not client.exists(own(name))
    client.delete(f"sys:lock:{name}")


@pytest.mark.parametrize("method", ["transaction", "native"])
async def test_other_release_methods_leave_nothing_without_an_end(
    front, client, name, make, method
):
    try:
        async with front.held(make(release_method=method, expire=0.5)):
            pass
    except Exception as error:  # this client or server does not have it
        pytest.skip(str(error))

    assert await do(make().owner_info()) is None
    await until(front, lambda: not client.exists(own(name)))


def raising():
    raise RuntimeError("own")


async def late():
    return {}


@pytest.mark.parametrize(
    "fields",
    [raising, late, lambda: None, lambda: {"since": 1}, lambda: {"a": object()}],
    ids=["raises", "coroutine", "None", "reserved", "no JSON"],
)
async def test_failing_function_costs_only_its_fields(front, client, name, make, caplog, fields):
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            async with front.held(make(owner_info=fields)):
                found = json.loads(client.get(own(name)))

    assert found["pid"] == os.getpid()
    assert len([one for one in caplog.messages if "owner_info=" in one]) == 1


async def test_function_adds_replaces_and_removes_fields(front, client, name, make):
    fields = partial(dict, job="é", function=None, host="pod-1")

    async with front.held(make(owner_info=fields)):
        found = await do(make().owner_info())

    assert (found["job"], found["host"]) == ("é", "pod-1")
    assert "function" not in found


async def test_interrupt_of_the_function_leaves_nothing(front, client, name, make):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await do(make(owner_info=interrupted).acquire())

    assert not client.exists(f"sys:lock:{name}")

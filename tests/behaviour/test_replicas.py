"""replicas: how many replicas must confirm an acquisition."""

from __future__ import annotations

import pytest
from support.fronts import do, wrap
from support.lease_forms import in_function

from redis_lock_decorators import LockTimeoutError, LockUnconfirmedError, redis_lock
from redis_lock_decorators.testing import LocalServer

#: The first sync of a replica must not wait for more replicas to join it.
SYNC_IMMEDIATELY = ("--repl-diskless-sync-delay", "0")


@pytest.fixture
def make(front, conn, name):
    """A lock on the test's name."""

    def lock(lock_name=name, **options):
        return front.package.RedisLock(lock_name, client=conn, **options)

    return lock


async def test_replicas_confirm_unless_more_are_required(front, client, name, make, topology):
    connected = 0 if topology.is_cluster else client.info("replication")["connected_slaves"]

    async with front.held(make(replicas=connected)) as lease:
        assert await do(lease.owned())
    with pytest.raises(LockUnconfirmedError, match=f"{connected} of {connected + 1} replicas"):
        async with front.held(make(replicas=connected + 1, acquire_time=0, expire=0.4)):
            raise AssertionError("the body must not run")

    assert not client.exists(f"sys:lock:{name}")


@pytest.fixture(scope="module")
def pair():
    """A server and its replica."""
    with LocalServer(*SYNC_IMMEDIATELY) as master:
        follow = ("--replicaof", master.host, str(master.port))
        with LocalServer(*SYNC_IMMEDIATELY, *follow) as replica:
            replica.nodes[0].wait_until_says("master_link_status:up", "INFO")
            master.nodes[0].wait_until_says("slave0:.*state=online", "INFO")
            yield master, replica


@pytest.fixture(params=["direct", "wrapped"])
def replicated(front, pair, name, request):
    """A lock on a server with one replica, by a direct or a wrapped client."""
    conn = front.client(pair[0])
    if request.param == "wrapped":
        wrap(conn)

    def lock(**options):
        return front.package.RedisLock(name, client=conn, **options)

    return lock


@pytest.mark.parametrize("fencing", [False, True])
async def test_one_replica_confirms_one(front, pair, name, replicated, fencing):
    async with front.held(replicated(replicas=1, fencing=fencing)) as lease:
        on_replica = pair[1].client().get(f"sys:lock:{name}")

        assert on_replica.decode() == lease.identifier
        assert (lease.fence is not None) is fencing

    assert not pair[0].client().exists(f"sys:lock:{name}")


@pytest.mark.parametrize("fencing", [False, True])
async def test_one_replica_does_not_make_two(front, pair, name, replicated, fencing):
    lock = replicated(replicas=2, fencing=fencing, acquire_time=0, expire=1)

    with pytest.raises(LockUnconfirmedError, match="1 of 2 replicas confirmed"):
        async with front.held(lock):
            raise AssertionError("the body must not run")

    assert not pair[0].client().exists(f"sys:lock:{name}")
    assert await do(replicated().acquire(blocking=False)) is not None


@pytest.mark.parametrize("on_busy", ["skip", lambda body: "answered"], ids=["skip", "answer"])
async def test_on_busy_does_not_answer_for_replicas(front, pair, name, on_busy):
    options = {"replicas": 2, "acquire_time": 0, "on_busy": on_busy}
    work = in_function(front, redis_lock(name, client=front.client(pair[0]), **options))

    async def body(lease):
        raise AssertionError("the body must not run")

    with pytest.raises(LockUnconfirmedError, match="1 of 2 replicas"):
        await work(body)

    assert not pair[0].client().exists(f"sys:lock:{name}")


async def test_too_few_replicas_do_not_affect_another_holder(front, pair, name, replicated):
    async with front.held(replicated(expire=30)) as lease:
        greedy = replicated(replicas=2, acquire_time=0, expire=1)

        async def enter():
            async with front.held(greedy):
                raise AssertionError("held twice")

        (error,) = await front.elsewhere(enter)

        assert isinstance(error, LockTimeoutError)
        assert error.holder == lease.identifier[:8] + "…"
        assert await do(lease.owned())
        assert 20_000 < pair[0].client().pttl(f"sys:lock:{name}") <= 30_000


async def test_paused_replica_confirms_nothing_until_resumed(front, pair, name, replicated):
    master, replica = pair
    replica.pause()
    try:
        with pytest.raises(LockUnconfirmedError, match="0 of 1 replicas confirmed"):
            async with front.held(replicated(replicas=1, acquire_time=0, expire=1)):
                raise AssertionError("the body must not run")
        assert not master.client().exists(f"sys:lock:{name}")
    finally:
        replica.resume()

    async with front.held(replicated(replicas=1, acquire_time=20)) as lease:
        assert await do(lease.owned())

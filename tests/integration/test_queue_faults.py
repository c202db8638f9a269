"""Waiters enter despite crashes, stopped processes, cut connections and lost permissions."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time

import pytest
import redis
from support.fronts import do
from support.interruptions import Interrupted, Interruption
from support.leftovers import BLOCKING, PATIENCE, TIDY_FRONTS, lasting, until
from support.queues import entered_while, queue_of, queued
from support.workers import Holding

from redis_lock_decorators import _lua
from redis_lock_decorators._rules.keys import with_queue

FRONTS = TIDY_FRONTS

unix_only = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signal stops a process")

pytestmark = pytest.mark.usefixtures("tidy_queue")


@unix_only
async def test_killed_holder_delays_waiters_by_the_rest_of_its_lease(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    over = []

    async def kill():
        await queued(front, direct, name)
        holder.kill()
        over.append(time.monotonic() + direct.pttl(f"sys:lock:{name}") / 1000)

    with Holding(server.port, name, expire=1.5) as holder:
        times = await entered_while(front, lock, kill)

    assert -0.05 < times[0] - over[0] < 0.5


@unix_only
async def test_killed_waiter_delays_no_waiter(front, server, direct, rival, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())
    rival.wants(server, name)
    await queued(front, direct, name)
    released_at = []

    async def release_keys():
        await queued(front, direct, name, 2)
        rival.end()
        await front.sleep(0.1)
        released_at.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys)

    assert times[0] - released_at[0] < 1.0  # less than a grant


@unix_only
async def test_stopped_waiter_costs_one_grant_and_enters_later(front, server, direct, rival, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())
    rival.wants(server, name)
    await queued(front, direct, name)
    released_at, held = [], []

    async def release_keys():
        await queued(front, direct, name, 4)
        rival.stop()
        released_at.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 3)
    async with front.held(lock):
        rival.go_on()
        await front.sleep(0.5)
        held.append(time.monotonic())

    assert times[-1] - released_at[0] < 2.0 + 1.0  # its grant is its lease of 2 s
    assert rival.entered() >= held[0]
    await until(front, lambda: not direct.exists(f"sys:lock:{name}"))


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
async def test_repeatedly_cut_connections_cost_no_waiter_its_position(front, frail, name, kind):
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    killer = frail.client()
    lease = await do(lock.acquire())

    async def cut():
        await queued(front, killer, name, 5)
        for _ in range(12):
            killer.client_kill_filter(_type=kind, skipme=True)
            await front.sleep(0.05)
        await do(lease.release())
        for _ in range(12):
            killer.client_kill_filter(_type=kind, skipme=True)
            await front.sleep(0.02)

    await entered_while(front, lock, cut, 5)

    assert lasting(killer, f"*{name}*") == []


async def test_scripts_flushed_from_the_server_are_sent_again(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())

    async def flush():
        await queued(front, direct, name, 5)
        direct.script_flush()
        await do(lease.release())
        for _ in range(20):
            direct.script_flush()

    assert len(await entered_while(front, lock, flush, 5)) == 5


@unix_only
@pytest.mark.parametrize("seconds", [0.5, 3.5])
async def test_waiters_survive_a_stopped_server(front, frail, name, seconds):
    lock = front.package.RedisLock(name, client=front.client(frail), expire=30)
    looking = frail.client()
    lease = await do(lock.acquire())

    async def stop():
        await queued(front, looking, name, 5)
        frail.pause()
        await front.sleep(seconds)
        frail.resume()
        await do(lease.release())

    await entered_while(front, lock, stop, 5)

    assert lasting(looking, f"*{name}*") == []


async def test_waiters_join_a_deleted_queue_again(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=3)
    lease = await do(lock.acquire())

    async def delete():
        await queued(front, direct, name, 5)
        direct.delete(queue_of(name))
        await queued(front, direct, name, 5)
        await do(lease.release())

    assert len(await entered_while(front, lock, delete, 5)) == 5


def _by_deleting(direct, name, lease):
    direct.delete(f"sys:lock:{name}")


def _by_releasing(direct, name, lease):
    lease.release()


def _plain(direct, name):
    direct.set(f"sys:lock:{name}", "an-external-client", px=20_000)


def _redis_py(direct, name):
    lock = direct.lock(f"sys:lock:{name}", timeout=20, thread_local=False)
    lock.acquire()
    return lock


@pytest.mark.parametrize(
    ("take", "release_keys"),
    [(_plain, _by_deleting), (_redis_py, _by_releasing), (_redis_py, _by_deleting)],
    ids=["plain-plain", "redis-py", "redis-py-plain"],
)
async def test_lock_released_by_an_external_client_is_acquired_soon(
    front, server, direct, name, take, release_keys
):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = take(direct, name)
    released_at = []

    async def delete():
        await queued(front, direct, name, 3)
        await front.sleep(0.7)
        released_at.append(time.monotonic())
        release_keys(direct, name, lease)

    times = await entered_while(front, lock, delete, 3)

    assert times[-1] - released_at[0] < 0.3 + 0.5


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_each_release_method_hands_off(front, server, direct, name, method):
    lock = front.package.RedisLock(
        name, client=front.client(server), expire=30, release_method=method
    )
    lease = await do(lock.acquire())
    released_at = []

    async def release_keys():
        await queued(front, direct, name, 5)
        released_at.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 5)

    assert times[-1] - released_at[0] < 1.0


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_release_lock_hands_off(front, server, direct, name, method):
    client = front.client(server)
    lock = front.package.RedisLock(name, client=client, expire=30)
    identifier = await do(front.package.acquire_lock(client, name, expire=20))
    released_at = []

    async def release_keys():
        await queued(front, direct, name, 5)
        released_at.append(time.monotonic())
        assert await do(front.package.release_lock(client, name, identifier, method=method))

    times = await entered_while(front, lock, release_keys, 5)

    assert times[-1] - released_at[0] < 1.0


async def test_polling_and_queued_waiters_all_enter(front, server, direct, name):
    client = front.client(server)
    lock = front.package.RedisLock(name, client=client, expire=5)

    async def look():
        identifier = await do(front.package.acquire_lock(client, name, PATIENCE))
        assert identifier
        await front.sleep(0.001)
        assert await do(front.package.release_lock(client, name, identifier))

    async def queue():
        for _ in range(5):
            async with front.held(lock):
                pass

    results = await front.elsewhere(*[look, queue] * 5)

    assert results == [None] * 10


async def test_client_that_must_not_publish_polls_and_warns_once(
    front, server, direct, name, caplog
):
    direct.acl_setuser(
        "quiet", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset=True
    )
    client = front.client(server, username="quiet", password="any")  # noqa: S106  # nopass
    lock = front.package.RedisLock(name, client=client, expire=5)
    lease = await do(lock.acquire())

    async def release_keys():
        await front.sleep(0.5)
        await do(lease.release())

    with caplog.at_level(logging.WARNING, "redis_lock_decorators"):
        await entered_while(front, lock, release_keys, 4)
        async with front.held(lock) as lease:
            assert await do(lock.acquire(0.05, blocking=False)) is None

    direct.acl_deluser("quiet")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, said
    assert "fall back to polling" in said[0]


@pytest.mark.parametrize("denied", [["-info"], ["-pubsub"], ["-info", "-pubsub"]])
async def test_waiters_are_notified_without_optional_permissions(
    front, server, direct, name, denied, caplog
):
    direct.execute_command(
        *("ACL", "SETUSER", "lesser", "reset", "on", "nopass", "~*", "&*", "+@all", *denied)
    )
    client = front.client(server, username="lesser", password="any")  # noqa: S106  # nopass
    lock = front.package.RedisLock(name, client=client, expire=30)
    lease, released_at = await do(lock.acquire()), []

    async def release_keys():
        await queued(front, direct, name, 5)
        await front.sleep(0.6)
        released_at.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 5)

    direct.acl_deluser("lesser")
    assert times[-1] - released_at[0] < 2.0  # less than one grant
    assert caplog.records == []


async def test_lost_reply_to_a_join_adds_no_second_entry(front, server, proxy, direct, name):
    lock = front.package.RedisLock(name, client=front.client(proxy), expire=30)
    lease = await do(lock.acquire())
    proxy.drop_reply(lambda command: b"}~:queue" in b" ".join(command), times=4)
    most = []

    async def release_keys():
        await queued(front, direct, name, 3)
        await front.sleep(0.3)
        most.append(direct.zcard(queue_of(name)))
        await do(lease.release())

    await entered_while(front, lock, release_keys, 3)

    assert most == [3]


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_waiter_interrupted_at_any_line_leaves_no_keys(server, direct, name):
    client, other = server.client(), server.client()
    lock = BLOCKING.package.RedisLock(name, client=client, expire=30)
    held = BLOCKING.package.RedisLock(name, client=other, expire=30)

    def release_keys(lease, left):
        end = time.monotonic() + PATIENCE
        while not direct.exists(queue_of(name)) and not left.is_set():
            assert time.monotonic() < end
        lease.release()

    interruption = Interruption(0)
    for number in range(2_000):
        lease, left = held.acquire(2.0), threading.Event()  # a lost grant lasts for 2.5 s
        assert lease is not None, interruption.location
        helper = threading.Thread(target=release_keys, args=(lease, left))
        helper.start()
        interruption = Interruption(number)
        with contextlib.suppress(Interrupted), interruption, lock:
            pass
        left.set()
        helper.join()
        if not interruption.happened:
            break

    assert 100 < number < 1_999
    client.close()
    other.close()


def test_recheck_gives_other_data_no_end(direct, name):
    key = f"sys:lock:{name}".encode()
    keys = with_queue((key,))
    direct.set(keys[1], "other data")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        direct.eval(_lua.script("recheck").text, len(keys), *keys, "text", 1, "entry")

    assert direct.pttl(keys[1]) == -1
    direct.delete(keys[1])

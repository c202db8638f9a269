"""Whatever happens to holders, waiters and the way between: nobody is forgotten."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time

import pytest
from support.fronts import do
from support.interruptions import Interrupted, Interruption
from support.leftovers import BLOCKING, PATIENCE, TIDY_FRONTS, lasting, until
from support.queues import entered_while, queue_of, queued
from support.workers import Holding

FRONTS = TIDY_FRONTS

unix_only = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signal stops a process")

pytestmark = pytest.mark.usefixtures("tidy_queue")


@unix_only
async def test_a_killed_holder_costs_what_is_left_of_its_lease(front, server, direct, name):
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
async def test_a_killed_waiter_costs_nothing(front, server, direct, rival, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())
    rival.wants(server, name)
    await queued(front, direct, name)
    told = []

    async def release_keys():
        await queued(front, direct, name, 2)
        rival.end()
        await front.sleep(0.1)
        told.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys)

    assert times[0] - told[0] < 1.0  # less than a grant


@unix_only
async def test_a_stopped_waiter_costs_one_grant_and_is_served_in_the_end(
    front, server, direct, rival, name
):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())
    rival.wants(server, name)
    await queued(front, direct, name)
    told, held = [], []

    async def release_keys():
        await queued(front, direct, name, 4)
        rival.stop()
        told.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 3)
    async with front.held(lock):
        rival.go_on()
        await front.sleep(0.5)
        held.append(time.monotonic())

    assert times[-1] - told[0] < 2.0 + 1.0  # its grant is its lease of 2 s
    assert rival.entered() >= held[0]
    await until(front, lambda: not direct.exists(f"sys:lock:{name}"))


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
async def test_connections_cut_again_and_again_cost_nobody_a_turn(front, frail, name, kind):
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


async def test_scripts_that_the_server_forgot_are_sent_again(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = await do(lock.acquire())

    async def flush():
        await queued(front, direct, name, 5)
        direct.script_flush()
        await do(lease.release())
        for _ in range(20):
            direct.script_flush()

    await entered_while(front, lock, flush, 5)


@unix_only
@pytest.mark.parametrize("seconds", [0.5, 3.5])
async def test_waiters_outlast_a_server_that_stops(front, frail, name, seconds):
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


async def test_a_queue_that_is_deleted_is_lined_up_for_again(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=3)
    lease = await do(lock.acquire())

    async def delete():
        await queued(front, direct, name, 5)
        direct.delete(queue_of(name))
        await queued(front, direct, name, 5)
        await do(lease.release())

    await entered_while(front, lock, delete, 5)


def _by_deleting(direct, name, lease):
    direct.delete(f"sys:lock:{name}")


def _by_letting_go(direct, name, lease):
    lease.release()


def _plain(direct, name):
    direct.set(f"sys:lock:{name}", "a-stranger", px=20_000)


def _redis_py(direct, name):
    lock = direct.lock(f"sys:lock:{name}", timeout=20, thread_local=False)
    lock.acquire()
    return lock


@pytest.mark.parametrize(
    ("take", "release_keys"),
    [(_plain, _by_deleting), (_redis_py, _by_letting_go), (_redis_py, _by_deleting)],
    ids=["plain-plain", "redis-py", "redis-py-plain"],
)
async def test_a_stranger_that_lets_go_is_found_soon(
    front, server, direct, name, take, release_keys
):
    lock = front.package.RedisLock(name, client=front.client(server), expire=30)
    lease = take(direct, name)
    told = []

    async def delete():
        await queued(front, direct, name, 3)
        await front.sleep(0.7)
        told.append(time.monotonic())
        release_keys(direct, name, lease)

    times = await entered_while(front, lock, delete, 3)

    assert times[-1] - told[0] < 0.3 + 0.5


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_any_way_to_let_go_hands_on(front, server, direct, name, method):
    lock = front.package.RedisLock(
        name, client=front.client(server), expire=30, release_method=method
    )
    lease = await do(lock.acquire())
    told = []

    async def release_keys():
        await queued(front, direct, name, 5)
        told.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 5)

    assert times[-1] - told[0] < 1.0


@pytest.mark.parametrize("method", ["script", "transaction", "native"])
async def test_release_lock_hands_on(front, server, direct, name, method):
    client = front.client(server)
    lock = front.package.RedisLock(name, client=client, expire=30)
    identifier = await do(front.package.acquire_lock(client, name, expire=20))
    told = []

    async def release_keys():
        await queued(front, direct, name, 5)
        told.append(time.monotonic())
        assert await do(front.package.release_lock(client, name, identifier, method=method))

    times = await entered_while(front, lock, release_keys, 5)

    assert times[-1] - told[0] < 1.0


async def test_those_who_look_and_those_who_queue_all_get_in(front, server, direct, name):
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


async def test_who_may_not_publish_looks_and_says_so_once(front, server, direct, name, caplog):
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
async def test_waiters_are_told_where_less_is_allowed(front, server, direct, name, denied, caplog):
    direct.execute_command(
        *("ACL", "SETUSER", "lesser", "reset", "on", "nopass", "~*", "&*", "+@all", *denied)
    )
    client = front.client(server, username="lesser", password="any")  # noqa: S106  # nopass
    lock = front.package.RedisLock(name, client=client, expire=30)
    lease, told = await do(lock.acquire()), []

    async def release_keys():
        await queued(front, direct, name, 5)
        await front.sleep(0.6)
        told.append(time.monotonic())
        await do(lease.release())

    times = await entered_while(front, lock, release_keys, 5)

    direct.acl_deluser("lesser")
    assert times[-1] - told[0] < 2.0  # less than one grant
    assert caplog.records == []


async def test_a_lost_reply_while_lining_up_takes_no_second_place(
    front, server, proxy, direct, name
):
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
def test_a_waiter_interrupted_at_any_line_leaves_nothing(server, direct, name):
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
        lease, left = held.acquire(2.0), threading.Event()  # a lost turn lasts for 2.5 s
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

"""Whatever stops a holder, its server or the way between: the lease goes on, or its loss is told.

A loss that is told: ``lost``, ``check()``, ``on_lost`` once, ``LockLostError`` at the block's end,
and no other was inside before the lease's last deadline.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import re
import signal
import time

import pytest
from support.fronts import LEGACY
from support.leftovers import ASYNCIO, BLOCKING, TIDY_FRONTS, until
from support.proxy import FaultProxy
from support.workers import hold_until_lost

from redis_lock_decorators import LockLostError, _lua

FRONTS = TIDY_FRONTS
WORLDS = [front.name for front in FRONTS]

#: How a lease ended whose time ran out, according to who saw it first: the clock or the server.
OVER = "its time ran out|its key is gone|holds it"

unix_only = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signal stops a process")

pytestmark = pytest.mark.usefixtures("tidy")


def renews(command):
    """Whether a command at the proxy is a renewal."""
    return command[0].startswith(b"EVAL") and command[1] in _lua.script("renew")


class Holder:
    """A block that holds a lock, and what was told of its loss."""

    def __init__(self, front, place, name, **options):
        self.front = front
        self.told, self.told_at = [], []
        self.lease = self.at_edge = None
        client = options.pop("client", None) or front.client(place)
        self.lock = front.package.RedisLock(name, client=client, on_lost=self._note, **options)

    def _note(self, *client_state):
        self.told_at.append(time.monotonic())
        self.told.append(client_state)

    @property
    def believed_until(self):
        """The last moment at which the holder could take itself to be inside."""
        return min([self.lease.deadline, *self.told_at])

    async def hold(self, body):
        """Run ``await body(lease)`` in the block."""
        try:
            async with self.front.held(self.lock) as self.lease:
                await body(self.lease)
        except LockLostError as error:
            self.at_edge = error

    async def wait_for_loss(self, lease):
        """A body that ends when it sees that its lease is lost, if nothing ends it before."""
        await until(self.front, lambda: lease.lost)

    async def assert_told(self, why):
        """The loss was told in every way, and once."""
        assert self.lease.lost
        assert self.lease.remaining() == 0
        with pytest.raises(LockLostError, match=why):
            self.lease.check()
        assert self.at_edge is not None
        await until(self.front, lambda: self.told)
        await self.front.sleep(0.05)  # a second call would come by now
        [(lease, reason)] = self.told
        assert lease is self.lease
        assert re.search(why, reason)

    def assert_unbroken(self):
        """Nothing was told, as there was nothing to tell."""
        assert (self.at_edge, self.told) == (None, [])


@unix_only
@pytest.mark.parametrize("world", WORLDS)
def test_a_process_stopped_for_longer_than_its_lease_is_told(server, direct, name, world):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    holder = context.Process(target=hold_until_lost, args=(server.port, name, 0.6, world, theirs))
    holder.start()
    assert ours.poll(60)
    ours.recv()

    os.kill(holder.pid, signal.SIGSTOP)
    entered, lease = _entered(server, name)
    os.kill(holder.pid, signal.SIGCONT)
    assert ours.poll(60)
    deadline, at_edge, checked, told = ours.recv()
    holder.join()

    assert deadline <= entered
    assert (at_edge, checked, len(told)) == ("LockLostError", "LockLostError", 1)
    assert lease.owned()
    lease.release()


def _entered(server, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client(), acquire_time=30, expire=5)
    lease = lock.acquire()
    return time.monotonic(), lease


def hold_the_gil(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


async def test_a_lease_outlives_a_short_hold_of_the_gil(front, server, rival, name):
    holder = Holder(front, server, name, expire=1.5)

    async def body(lease):
        rival.wants(server, name)
        for _ in range(4):
            await front.sleep(0.1)
            hold_the_gil(0.45)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_unbroken()
    assert rival.entered() >= left[0]


async def test_a_gil_held_for_longer_than_the_lease_is_told(front, server, rival, name):
    holder = Holder(front, server, name, expire=0.6)

    async def body(lease):
        rival.wants(server, name)
        hold_the_gil(1.0)
        assert lease.lost
        await holder.wait_for_loss(lease)
        await front.sleep(0)

    await holder.hold(body)

    await holder.assert_told(OVER)
    assert holder.believed_until <= rival.entered()


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
@pytest.mark.parametrize("blocker", ["holder", "other-task"])
def test_an_event_loop_blocked_for_longer_than_the_lease_is_told(server, rival, name, blocker):
    async def test():
        holder = Holder(ASYNCIO, server, name, expire=0.6)

        async def block():
            time.sleep(1.0)

        async def body(lease):
            rival.wants(server, name)
            blocking = block() if blocker == "holder" else asyncio.ensure_future(block())
            await blocking
            assert lease.lost
            await asyncio.sleep(60)  # it is cancelled here

        await holder.hold(body)

        await holder.assert_told(OVER)
        assert holder.believed_until <= rival.entered()

    ASYNCIO.run(test())


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
def test_a_lease_outlives_an_event_loop_that_is_blocked_for_a_while(server, rival, name):
    async def test():
        holder = Holder(ASYNCIO, server, name, expire=1.5)

        async def body(lease):
            rival.wants(server, name)
            for _ in range(4):
                await asyncio.sleep(0.1)
                time.sleep(0.45)
            left.append(time.monotonic())

        left = []
        await holder.hold(body)

        holder.assert_unbroken()
        assert rival.entered() >= left[0]

    ASYNCIO.run(test())


@unix_only
async def test_a_server_that_stops_and_is_back_within_the_lease_breaks_nothing(
    front, frail, rival, name
):
    holder = Holder(front, frail, name, expire=3)

    async def body(lease):
        first = lease.deadline
        rival.wants(frail, name)
        await front.sleep(0.9)
        frail.pause()
        await front.sleep(1.2)  # the first renewal is sent meanwhile
        frail.resume()
        await until(front, lambda: time.monotonic() > first + 0.5)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_unbroken()
    assert rival.entered() >= left[0]


def _stop(frail, proxy):
    frail.pause()


def _swallow(frail, proxy):
    proxy.black_hole = True


def _kill(frail, proxy):
    frail.kill()


@unix_only
@pytest.mark.parametrize("harm", [_stop, _swallow, _kill], ids=["stopped", "silent", "killed"])
async def test_a_loss_is_told_at_the_deadline_while_the_server_is_away(front, frail, name, harm):
    """Nobody waits for a renewal that hangs, nor lets the block's end pass in silence."""
    with FaultProxy(frail.host, frail.port) as proxy:
        holder = Holder(front, proxy, name, expire=0.9)
        seen = []

        async def body(lease):
            harm(frail, proxy)
            try:
                await until(front, lambda: holder.told)
            finally:
                seen.append(time.monotonic())

        await holder.hold(body)

        assert -0.05 < seen[0] - holder.lease.deadline < 0.8
        await holder.assert_told("its time ran out")


@unix_only
async def test_a_renewal_that_arrives_late_takes_nothing_from_the_next_holder(
    front, frail, rival, name
):
    holder = Holder(front, frail, name, expire=0.6)

    async def body(lease):
        rival.wants(frail, name)
        frail.pause()
        await until(front, lambda: holder.told)

    async def resume():
        await until(front, lambda: holder.told)
        frail.resume()

    await front.elsewhere(lambda: holder.hold(body), resume)

    await holder.assert_told(OVER)
    assert holder.believed_until <= rival.entered()


@pytest.mark.parametrize("times", [1, 4], ids=["once", "again-and-again"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_a_connection_that_is_cut_breaks_no_lease(
    front, server, proxy, rival, name, fate, times
):
    holder = Holder(front, proxy, name, expire=1.5)

    async def body(lease):
        first = lease.deadline
        rival.wants(server, name)
        getattr(proxy, fate)(renews, times=times)
        await until(front, lambda: time.monotonic() > first + 0.3)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_unbroken()
    assert len(list(filter(renews, proxy.commands))) > times
    assert rival.entered() >= left[0]


async def test_all_connections_killed_again_and_again_break_no_lease(front, frail, rival, name):
    holder = Holder(front, frail, name, expire=1.5)
    killer = frail.client()

    async def body(lease):
        first = lease.deadline
        rival.wants(frail, name)
        while time.monotonic() < first + 0.3:
            killer.client_kill_filter(_type="normal", skipme=True)
            await front.sleep(0.15)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_unbroken()
    assert rival.entered() >= left[0]


async def test_a_key_that_is_deleted_is_told_before_the_lease_would_end(
    front, server, direct, name
):
    holder = Holder(front, server, name, expire=1.5)

    async def body(lease):
        direct.delete(lease.key)
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_told("its key is gone")
    assert not direct.exists(holder.lease.key)


async def test_a_key_that_is_replaced_is_told_and_left_alone(front, server, direct, name):
    holder = Holder(front, server, name, expire=0.9)

    async def body(lease):
        direct.set(lease.key, "a-stranger", px=60_000)
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_told("holds it")
    assert direct.get(holder.lease.key) == b"a-stranger"
    assert 30_000 < direct.pttl(holder.lease.key) <= 60_000
    direct.delete(holder.lease.key)


async def test_one_of_several_names_that_is_lost_loses_the_lease(front, server, direct, name):
    holder = Holder(front, server, [f"{name}:a", f"{name}:b"], expire=0.9)

    async def body(lease):
        direct.set(f"sys:lock:{name}:b", "a-stranger")
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_told("holds it")
    assert direct.get(f"sys:lock:{name}:b") == b"a-stranger"
    assert not direct.exists(f"sys:lock:{name}:a")
    direct.delete(f"sys:lock:{name}:b")


@unix_only
async def test_a_server_that_is_away_delays_no_renewal_at_another(front, server, frail, name):
    away = Holder(front, frail, name, expire=0.9)
    well = Holder(front, server, name, expire=0.9)

    async def lose(lease):
        frail.pause()
        await until(front, lambda: away.told)

    async def keep(lease):
        first = lease.deadline
        await until(front, lambda: time.monotonic() > first + 0.5)

    await front.elsewhere(lambda: away.hold(lose), lambda: well.hold(keep))

    await away.assert_told(OVER)
    well.assert_unbroken()

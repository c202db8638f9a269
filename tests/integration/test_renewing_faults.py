"""Holders, servers and connections that stop: the lease is renewed, or its loss is reported.

A loss is reported by ``lost``, ``check()``, one call of ``on_lost`` and ``LockLostError`` at the
block's end, and no other holder enters before the lease's last deadline.
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

#: The reason for the end of an expired lease, found by the clock or by the server.
OVER = "its time ran out|its key is gone|holds it"

unix_only = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no signal stops a process")

pytestmark = pytest.mark.usefixtures("tidy")


def renews(command):
    """Whether a command at the proxy is a renewal."""
    return command[0].startswith(b"EVAL") and command[1] in _lua.script("renew")


class Holder:
    """A block that holds a lock, and the reports of its loss."""

    def __init__(self, front, place, name, **options):
        self.front = front
        self.reports, self.reported_at = [], []
        self.lease = self.at_exit = None
        client = options.pop("client", None) or front.client(place)
        self.lock = front.package.RedisLock(name, client=client, on_lost=self._note, **options)

    def _note(self, *report):
        self.reported_at.append(time.monotonic())
        self.reports.append(report)

    @property
    def believed_until(self):
        """The last moment at which the holder could assume that it holds the lock."""
        return min([self.lease.deadline, *self.reported_at])

    async def hold(self, body):
        """Run ``await body(lease)`` in the block."""
        try:
            async with self.front.held(self.lock) as self.lease:
                await body(self.lease)
        except LockLostError as error:
            self.at_exit = error

    async def wait_for_loss(self, lease):
        """A body that runs until its lease is lost, unless it is cancelled earlier."""
        await until(self.front, lambda: lease.lost)

    async def assert_reported(self, why):
        """Check that the loss was reported in every way, and once."""
        assert self.lease.lost
        assert self.lease.remaining() == 0
        with pytest.raises(LockLostError, match=why):
            self.lease.check()
        assert self.at_exit is not None
        await until(self.front, lambda: self.reports)
        await self.front.sleep(0.05)  # a second call would arrive by now
        [(lease, reason)] = self.reports
        assert lease is self.lease
        assert re.search(why, reason)

    def assert_not_lost(self):
        """Check that no loss was reported."""
        assert (self.at_exit, self.reports) == (None, [])


@unix_only
@pytest.mark.parametrize("world", WORLDS)
def test_process_stopped_longer_than_its_lease_is_notified(server, direct, name, world):
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
    deadline, at_exit, checked, reports = ours.recv()
    holder.join()

    assert deadline <= entered
    assert (at_exit, checked, len(reports)) == ("LockLostError", "LockLostError", 1)
    assert lease.owned()
    lease.release()


def _entered(server, name):
    lock = BLOCKING.package.RedisLock(name, client=server.client(), acquire_time=30, expire=5)
    lease = lock.acquire()
    return time.monotonic(), lease


def hold_the_gil(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


async def test_lease_is_renewed_after_the_gil_was_held_briefly(front, server, rival, name):
    holder = Holder(front, server, name, expire=1.5)

    async def body(lease):
        rival.wants(server, name)
        for _ in range(4):
            await front.sleep(0.1)
            hold_the_gil(0.45)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_not_lost()
    assert rival.entered() >= left[0]


async def test_gil_held_longer_than_the_lease_is_reported(front, server, rival, name):
    holder = Holder(front, server, name, expire=0.6)

    async def body(lease):
        rival.wants(server, name)
        hold_the_gil(1.0)
        assert lease.lost
        await holder.wait_for_loss(lease)
        await front.sleep(0)

    await holder.hold(body)

    await holder.assert_reported(OVER)
    assert holder.believed_until <= rival.entered()


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
@pytest.mark.parametrize("blocker", ["holder", "other-task"])
def test_event_loop_blocked_longer_than_the_lease_is_reported(server, rival, name, blocker):
    async def test():
        holder = Holder(ASYNCIO, server, name, expire=0.6)

        async def block():
            time.sleep(1.0)

        async def body(lease):
            rival.wants(server, name)
            blocking = block() if blocker == "holder" else asyncio.ensure_future(block())
            await blocking
            assert lease.lost
            await asyncio.sleep(60)  # the cancellation arrives here

        await holder.hold(body)

        await holder.assert_reported(OVER)
        assert holder.believed_until <= rival.entered()

    ASYNCIO.run(test())


@pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")
def test_lease_is_renewed_after_its_loop_was_blocked_briefly(server, rival, name):
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

        holder.assert_not_lost()
        assert rival.entered() >= left[0]

    ASYNCIO.run(test())


@unix_only
async def test_server_paused_for_less_than_the_lease_loses_nothing(front, frail, rival, name):
    holder = Holder(front, frail, name, expire=3)

    async def body(lease):
        first = lease.deadline
        rival.wants(frail, name)
        await front.sleep(0.9)
        frail.pause()
        await front.sleep(1.2)  # the first renewal is sent during the pause
        frail.resume()
        await until(front, lambda: time.monotonic() > first + 0.5)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_not_lost()
    assert rival.entered() >= left[0]


def _stop(frail, proxy):
    frail.pause()


def _black_hole(frail, proxy):
    proxy.black_hole = True


def _kill(frail, proxy):
    frail.kill()


@unix_only
@pytest.mark.parametrize("fault", [_stop, _black_hole, _kill], ids=["stopped", "silent", "killed"])
async def test_loss_is_reported_at_the_deadline_during_an_outage(front, frail, name, fault):
    """A renewal that hangs delays neither the report nor the error at the block's end."""
    with FaultProxy(frail.host, frail.port) as proxy:
        holder = Holder(front, proxy, name, expire=0.9)
        seen = []

        async def body(lease):
            fault(frail, proxy)
            try:
                await until(front, lambda: holder.reports)
            finally:
                seen.append(time.monotonic())

        await holder.hold(body)

        assert -0.05 < seen[0] - holder.lease.deadline < 0.8
        await holder.assert_reported("its time ran out")


@unix_only
async def test_late_renewal_does_not_affect_the_next_holder(front, frail, rival, name):
    holder = Holder(front, frail, name, expire=0.6)

    async def body(lease):
        rival.wants(frail, name)
        frail.pause()
        await until(front, lambda: holder.reports)

    async def resume():
        await until(front, lambda: holder.reports)
        frail.resume()

    await front.elsewhere(lambda: holder.hold(body), resume)

    await holder.assert_reported(OVER)
    assert holder.believed_until <= rival.entered()


@pytest.mark.parametrize("times", [1, 4], ids=["once", "repeatedly"])
@pytest.mark.parametrize("fate", ["drop_reply", "drop_request"])
async def test_cut_connection_loses_no_lease(front, server, proxy, rival, name, fate, times):
    holder = Holder(front, proxy, name, expire=1.5)

    async def body(lease):
        first = lease.deadline
        rival.wants(server, name)
        getattr(proxy, fate)(renews, times=times)
        await until(front, lambda: time.monotonic() > first + 0.3)
        left.append(time.monotonic())

    left = []
    await holder.hold(body)

    holder.assert_not_lost()
    assert len(list(filter(renews, proxy.commands))) > times
    assert rival.entered() >= left[0]


async def test_connections_killed_repeatedly_lose_no_lease(front, frail, rival, name):
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

    holder.assert_not_lost()
    assert rival.entered() >= left[0]


async def test_deleted_key_is_reported_before_the_lease_ends(front, server, direct, name):
    holder = Holder(front, server, name, expire=1.5)

    async def body(lease):
        direct.delete(lease.key)
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_reported("its key is gone")
    assert not direct.exists(holder.lease.key)


async def test_replaced_key_is_reported_and_not_changed(front, server, direct, name):
    holder = Holder(front, server, name, expire=0.9)

    async def body(lease):
        direct.set(lease.key, "another", px=60_000)
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_reported("holds it")
    assert direct.get(holder.lease.key) == b"another"
    assert 30_000 < direct.pttl(holder.lease.key) <= 60_000
    direct.delete(holder.lease.key)


async def test_loss_of_one_of_several_names_loses_the_lease(front, server, direct, name):
    holder = Holder(front, server, [f"{name}:a", f"{name}:b"], expire=0.9)

    async def body(lease):
        direct.set(f"sys:lock:{name}:b", "another")
        await holder.wait_for_loss(lease)

    await holder.hold(body)

    await holder.assert_reported("holds it")
    assert direct.get(f"sys:lock:{name}:b") == b"another"
    assert not direct.exists(f"sys:lock:{name}:a")
    direct.delete(f"sys:lock:{name}:b")


@unix_only
async def test_paused_server_delays_no_renewal_at_another(front, server, frail, name):
    paused = Holder(front, frail, name, expire=0.9)
    running = Holder(front, server, name, expire=0.9)

    async def lose(lease):
        frail.pause()
        await until(front, lambda: paused.reports)

    async def renew(lease):
        first = lease.deadline
        await until(front, lambda: time.monotonic() > first + 0.5)

    await front.elsewhere(lambda: paused.hold(lose), lambda: running.hold(renew))

    await paused.assert_reported(OVER)
    running.assert_not_lost()

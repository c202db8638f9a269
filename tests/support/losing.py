"""Locks that are lost while they are held, in several ways, and the reports of the losses."""

from __future__ import annotations

import asyncio
import contextlib
import time

from redis_lock_decorators import LockLostError, LockNotOwnedError, redis_lock
from support.fronts import do
from support.leftovers import BLOCKING

#: Seconds of the leases.
EXPIRE = 1.2
#: Seconds for which a holder waits for the report of a loss: longer than its lease.
PATIENCE = 8.0


def losing(front, server, name, on_lost, **options):
    """A lock whose loss is detected soon."""
    return front.package.RedisLock(
        name, client=front.client(server), expire=0.6, on_lost=on_lost, **options
    )


class LossScene:
    """A front, a server behind a proxy, and a direct connection to the server."""

    def __init__(self, front, server, proxy, **options):
        self.front, self.server, self.proxy = front, server, proxy
        self.options = {"expire": EXPIRE, **options}
        self.client = front.client(proxy)
        self.direct = server.client()
        self.is_lost = False

    def lock(self, name, report, **options):
        options = {"client": self.client, "acquire_time": 30, **self.options, **options}
        return self.front.package.RedisLock(name, on_lost=report.note, **options)

    async def wait(self, report):
        """Run the body: wait until a loss is reported or the task is cancelled.

        Where the release must find the loss: wait until the lock is lost.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not report.calls and not self.is_lost:
            await self.front.sleep(0.01)
        if not self.is_lost:
            await self.front.sleep(0.1)  # the cancellation arrives here at the latest


class LossReport:
    """What was reported to the holder of one lock."""

    def __init__(self):
        self.calls, self.lease, self.at_exit = [], None, None
        self.cancelled = self.resumed = False

    def note(self, lease, why):
        self.calls.append((lease, why))

    def lacks(self, front, cancels):
        """The reports of the loss that are missing."""
        try:
            self.lease.check()
            checked = None
        except LockNotOwnedError as error:
            checked = type(error)
        expected = {
            "lost": self.lease.lost,
            "check() raises LockLostError": checked is LockLostError,
            f"on_lost once, not {len(self.calls)} times": len(self.calls) == 1,
            f"LockLostError at the exit, not {self.at_exit!r}": type(self.at_exit) is LockLostError,
            "the task is cancelled": self.cancelled or not cancels or front is BLOCKING,
        }
        return [what for what, is_so in expected.items() if not is_so]


async def run_body(scene, report, lease, ready):
    report.lease = lease
    ready()
    try:
        await scene.wait(report)
    except asyncio.CancelledError:
        report.cancelled = True
        raise


# Methods of holding a lock. Each enters, calls ``ready``, waits in its block and propagates
# LockLostError.


async def in_a_block(scene, name, report, ready, **options):
    async with scene.front.held(scene.lock(name, report, **options)) as lease:
        await run_body(scene, report, lease, ready)


async def fenced(scene, name, report, ready):
    await in_a_block(scene, name, report, ready, fencing=True)


async def polled(scene, name, report, ready):
    await _after_another(scene, name, report, ready, wait="poll")


async def queued(scene, name, report, ready):
    await _after_another(scene, name, report, ready)


async def in_a_cohort(scene, name, report, ready):
    await _after_another(scene, name, report, ready, wait="cohort")


async def _after_another(scene, name, report, ready, **options):
    """Hold a lock that was handed off by an earlier holder."""
    before = await do(scene.lock(name, LossReport(), **options).acquire())

    async def release():
        await scene.front.sleep(0.1)
        await do(before.release())

    async def hold():
        try:
            await in_a_block(scene, name, report, ready, **options)
        except LockLostError as error:
            report.at_exit = error

    results = await scene.front.elsewhere(release, hold)
    for error in results:
        if error is not None:
            raise error


async def of_several_names(scene, name, report, ready):
    lock = scene.lock([name, f"{name}:b"], report)
    async with scene.front.held(lock) as lease:
        await run_body(scene, report, lease, ready)


async def decorated(scene, name, report, ready):
    front = scene.front
    options = {"client": scene.client, "on_lost": report.note, **scene.options}

    def work():
        from redis_lock_decorators._io.blocking_port import run

        run(run_body(scene, report, front.package.current_lease(), ready))

    async def async_work():
        await run_body(scene, report, front.package.current_lease(), ready)

    await do(redis_lock(name, **options)(work if front is BLOCKING else async_work)())


async def in_a_generator(scene, name, report, ready):
    """The lock is lost between two steps."""
    front = scene.front
    options = {"client": scene.client, "on_lost": report.note, **scene.options}

    def steps():
        yield front.package.current_lease()
        report.resumed = True

    async def async_steps():
        yield front.package.current_lease()
        report.resumed = True

    report.cancelled = True  # no task runs the block, so none can be cancelled
    if front is BLOCKING:
        for lease in redis_lock(name, **options)(steps)():
            await between_steps(scene, report, lease, ready)
    else:
        async for lease in redis_lock(name, **options)(async_steps)():
            await between_steps(scene, report, lease, ready)
    assert not report.resumed, "the generator ran on without its lock"


async def between_steps(scene, report, lease, ready):
    report.lease = lease
    ready()
    await scene.wait(report)


async def used_elsewhere(scene, name, report, ready):
    """Acquired in one thread or task, used as a block in another."""

    async def acquire():
        return await do(scene.lock(name, report).acquire())

    (lease,) = await scene.front.elsewhere(acquire)
    if isinstance(lease, BaseException):
        raise lease
    async with scene.front.held(lease):
        await run_body(scene, report, lease, ready)


async def moved(scene, name, report, ready):
    """A block entered in one thread or task and left in another: no task can be cancelled."""
    lock = scene.lock(name, report)
    report.cancelled = True

    async def enter():
        report.lease = await do((getattr(lock, "__enter__", None) or lock.__aenter__)())

    await scene.front.elsewhere(enter)
    ready()
    await scene.wait(report)
    await do((getattr(lock, "__exit__", None) or lock.__aexit__)(None, None, None))


async def handed_off(scene, name, report, ready):
    """Other waiters of the process wait for the lock, which is handed off to them."""

    async def hold():
        try:
            await in_a_block(scene, name, report, ready)
        except LockLostError as error:
            report.at_exit = error

    async def wait():
        await scene.front.sleep(0.2)
        with contextlib.suppress(LockNotOwnedError):
            next_lease = await do(scene.lock(name, LossReport(), acquire_time=5).acquire())
            if next_lease is not None:
                await do(next_lease.release())

    await scene.front.elsewhere(hold, wait, wait)


HOLDS = [
    in_a_block,
    fenced,
    polled,
    queued,
    in_a_cohort,
    of_several_names,
    decorated,
    in_a_generator,
    used_elsewhere,
    moved,
]

"""Who is told of a loss: every way to lose a lock against every way to hold one.

Told is: ``lost``, ``check()``, ``on_lost`` once, ``LockLostError`` at the edge of work that
succeeded, and in asyncio a cancellation of the task in the block. The ways to hold run side by
side, each on a lock of its own; each reports what it lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time

import pytest
from support.fronts import do
from support.leftovers import BLOCKING, TIDY_FRONTS, until
from support.proxy import FaultProxy

from redis_lock_decorators import LockLostError, LockNotOwnedError, redis_lock
from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

#: Seconds of the leases.
EXPIRE = 1.2
#: Seconds that a holder waits to be told: longer than its lease.
PATIENCE = 8.0


class Scene:
    """A front, a server behind a proxy, and a way to look past it."""

    def __init__(self, front, server, proxy, **options):
        self.front, self.server, self.proxy = front, server, proxy
        self.options = {"expire": EXPIRE, **options}
        self.client = front.client(proxy)
        self.direct = server.client()
        self.is_lost = False

    def lock(self, name, told, **options):
        options = {"client": self.client, "acquire_time": 30, **self.options, **options}
        return self.front.package.RedisLock(name, on_lost=told.note, **options)

    async def wait(self, told):
        """The work in the block: goes on until it is told of a loss, or is cancelled.

        Or until the lock is lost, where that is to be found by the release.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not told.calls and not self.is_lost:
            await self.front.sleep(0.01)
        if not self.is_lost:
            await self.front.sleep(0.1)  # it is cancelled here, if it has not been


class Told:
    """What the holder of one lock was told."""

    def __init__(self):
        self.calls, self.lease, self.at_edge = [], None, None
        self.cancelled = self.inside = False

    def note(self, lease, why):
        self.calls.append((lease, why))

    def lacks(self, front, cancels):
        """What is missing of what must have been told."""
        try:
            self.lease.check()
            checked = None
        except LockNotOwnedError as error:
            checked = type(error)
        client_state = {
            "lost": self.lease.lost,
            "check() raises LockLostError": checked is LockLostError,
            f"on_lost once, not {len(self.calls)} times": len(self.calls) == 1,
            f"LockLostError at the edge, not {self.at_edge!r}": type(self.at_edge) is LockLostError,
            "the task is cancelled": self.cancelled or not cancels or front is BLOCKING,
        }
        return [fact for fact, is_so in client_state.items() if not is_so]


async def _body(scene, told, lease, ready):
    told.lease = lease
    ready()
    try:
        await scene.wait(told)
    except asyncio.CancelledError:
        told.cancelled = True
        raise


# Ways to hold. Each enters, calls ``ready``, waits in its block and lets LockLostError pass.


async def plainly(scene, name, told, ready, **options):
    async with scene.front.held(scene.lock(name, told, **options)) as lease:
        await _body(scene, told, lease, ready)


async def fenced(scene, name, told, ready):
    await plainly(scene, name, told, ready, fencing=True)


async def polled(scene, name, told, ready):
    await _after_another(scene, name, told, ready, wait="poll")


async def queued(scene, name, told, ready):
    await _after_another(scene, name, told, ready)


async def in_a_cohort(scene, name, told, ready):
    await _after_another(scene, name, told, ready, wait="cohort")


async def _after_another(scene, name, told, ready, **options):
    """Be handed the lock by one who held it before."""
    before = await do(scene.lock(name, Told(), **options).acquire())

    async def release():
        await scene.front.sleep(0.1)
        await do(before.release())

    async def hold():
        try:
            await plainly(scene, name, told, ready, **options)
        except LockLostError as error:
            told.at_edge = error

    results = await scene.front.elsewhere(release, hold)
    for error in results:
        if error is not None:
            raise error


async def of_several_names(scene, name, told, ready):
    lock = scene.lock([name, f"{name}:b"], told)
    async with scene.front.held(lock) as lease:
        await _body(scene, told, lease, ready)


async def decorated(scene, name, told, ready):
    front = scene.front
    options = {"client": scene.client, "on_lost": told.note, **scene.options}

    def work():
        from redis_lock_decorators._io.blocking_port import run

        run(_body(scene, told, front.package.current_lease(), ready))

    async def async_work():
        await _body(scene, told, front.package.current_lease(), ready)

    await do(redis_lock(name, **options)(work if front is BLOCKING else async_work)())


async def in_a_generator(scene, name, told, ready):
    """Lost between two steps."""
    front = scene.front
    options = {"client": scene.client, "on_lost": told.note, **scene.options}

    def steps():
        yield front.package.current_lease()
        told.inside = True

    async def async_steps():
        yield front.package.current_lease()
        told.inside = True

    told.cancelled = True  # nobody is inside who could be
    if front is BLOCKING:
        for lease in redis_lock(name, **options)(steps)():
            await _between(scene, told, lease, ready)
    else:
        async for lease in redis_lock(name, **options)(async_steps)():
            await _between(scene, told, lease, ready)
    assert not told.inside, "it took a step without its lock"


async def _between(scene, told, lease, ready):
    told.lease = lease
    ready()
    await scene.wait(told)


async def used_elsewhere(scene, name, told, ready):
    """Acquired in one thread or task, used as a block in another."""

    async def acquire():
        return await do(scene.lock(name, told).acquire())

    (lease,) = await scene.front.elsewhere(acquire)
    if isinstance(lease, BaseException):
        raise lease
    async with scene.front.held(lease):
        await _body(scene, told, lease, ready)


async def moved(scene, name, told, ready):
    """A block entered in one thread or task and left in another: nobody is inside to cancel."""
    lock = scene.lock(name, told)
    told.cancelled = True

    async def enter():
        told.lease = await do((getattr(lock, "__enter__", None) or lock.__aenter__)())

    await scene.front.elsewhere(enter)
    ready()
    await scene.wait(told)
    await do((getattr(lock, "__exit__", None) or lock.__aexit__)(None, None, None))


async def with_heirs(scene, name, told, ready):
    """Others of the process wait for the lock and are passed it."""

    async def hold():
        try:
            await plainly(scene, name, told, ready)
        except LockLostError as error:
            told.at_edge = error

    async def inherit():
        await scene.front.sleep(0.2)
        with contextlib.suppress(LockNotOwnedError):
            successor = await do(scene.lock(name, Told(), acquire_time=5).acquire())
            if successor is not None:
                await do(successor.release())

    await scene.front.elsewhere(hold, inherit, inherit)


HOLDS = [
    plainly,
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

# Ways to lose. Each makes all the locks lost, which are held when it is called.


async def deleted(scene, names, leases, is_notified):
    scene.direct.delete(*[f"sys:lock:{name}" for name in names])


async def flushed(scene, names, leases, is_notified):
    scene.direct.flushall()


async def taken_over(scene, names, leases, is_notified):
    for name in names:
        scene.direct.set(f"sys:lock:{name}", "a-stranger")


async def not_renewed(scene, names, leases, is_notified):
    scene.proxy.black_hole = True
    await until(scene.front, is_notified)
    scene.proxy.black_hole = False


async def restarted(scene, names, leases, is_notified):
    scene.server.restart()


async def extend_refused(scene, names, leases, is_notified):
    scene.direct.delete(*[f"sys:lock:{name}" for name in names])

    async def extend(lease):
        with contextlib.suppress(LockNotOwnedError):
            await do(lease.extend(30))

    await scene.front.elsewhere(*[lambda lease=lease: extend(lease) for lease in leases])


LOSSES = [deleted, flushed, taken_over, not_renewed, restarted, extend_refused]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda way: way.__name__)
async def test_who_holds_is_told(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = Scene(front, server, proxy)
        found = await _lose_all(scene, name, HOLDS, lose)
        _let_go(scene)

    assert found == {}


async def cut_and_deleted(scene, names, leases, is_notified):
    """The idle connections are dead when the release uses them."""
    await deleted(scene, names, leases, is_notified)
    dying = scene.proxy.in_use()
    scene.direct.client_kill_filter(_type="normal", skipme=True)
    await until(scene.front, lambda: not any(one.is_in_use() for one in dying))


@pytest.mark.parametrize(
    "lose",
    [deleted, flushed, taken_over, restarted, cut_and_deleted],
    ids=lambda way: way.__name__,
)
async def test_a_loss_that_the_release_finds_is_told(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = Scene(front, server, proxy, expire=30)
        found = await _lose_all(scene, name, HOLDS, lose, ends_at_once=True)
        _let_go(scene)

    assert found == {}


@pytest.mark.parametrize("lose", [deleted, flushed, taken_over])
async def test_a_loss_is_told_to_who_passes_its_lock_on(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = Scene(front, server, proxy, expire=3, wait="cohort")
        found = await _lose_all(scene, name, [with_heirs], lose, ends_at_once=True)
        _let_go(scene)

    assert found == {}


@pytest.mark.parametrize("lose", [deleted, flushed, taken_over, not_renewed, restarted])
async def test_who_holds_a_renewed_stand_in_is_told_at_its_edge(front, name, lose, caplog):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = Scene(front, server, proxy)
        stand_in = importlib.import_module(f"{front.package.__name__}.lock").Lock
        lock = stand_in(scene.client, f"sys:lock:{name}", EXPIRE, auto_renew=True)

        def is_notified():
            return "was lost before its release" in caplog.text

        with pytest.raises(LockNotOwnedError):
            async with front.held(lock):
                await lose(scene, [name], [], is_notified)
                await until(front, is_notified)
        _let_go(scene)


async def test_the_end_of_max_hold_is_told(front, server, name):
    async def outstay(scene, names, leases, is_notified):
        await until(front, is_notified)

    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = Scene(front, server, proxy, max_hold=2.0)
        found = await _lose_all(scene, name, HOLDS, outstay)
        _let_go(scene)

    assert found == {}


async def _lose_all(scene, name, holds, lose, ends_at_once=False):
    """Hold a lock in each way, lose all; what each way lacks.

    The work goes on until it is told, or ends at once: then the release must find the loss.
    """
    told = {hold.__name__: Told() for hold in holds}
    entered = []

    def work(hold):
        mine, key = told[hold.__name__], f"{name}:{hold.__name__}"

        async def run():
            try:
                await hold(scene, key, mine, lambda: entered.append(key))
            except LockLostError as error:
                mine.at_edge = error
            return

        return run

    async def break_all():
        await until(scene.front, lambda: len(entered) == len(holds))
        await scene.front.sleep(0.4)  # for heirs to come
        names = [f"{name}:{hold.__name__}" for hold in holds]
        leases = [mine.lease for mine in told.values()]
        await lose(scene, names, leases, lambda: all(mine.calls for mine in told.values()))
        scene.is_lost = ends_at_once

    results = await scene.front.elsewhere(break_all, *[work(hold) for hold in holds])
    await scene.front.sleep(0.3)  # a second call of on_lost would come by now
    assert [error for error in results if error is not None] == []
    found = {way: mine.lacks(scene.front, not ends_at_once) for way, mine in told.items()}
    return {way: lacks for way, lacks in found.items() if lacks}


def _let_go(scene):
    scene.direct.close()


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_a_least_time_is_kept_where_memory_is_used_up(front, server, direct, name, method):
    options = {"expire": 20, "min_hold": 0.7, "release_method": method}
    lease = await do(
        front.package.RedisLock(name, client=front.client(server), **options).acquire()
    )
    direct.config_set("maxmemory", 1)
    try:
        await do(lease.release())
        left = direct.pttl(f"sys:lock:{name}")
    finally:
        direct.config_set("maxmemory", 0)

    assert 0 < left <= 700
    await front.sleep(0.8)
    assert not direct.exists(f"sys:lock:{name}")

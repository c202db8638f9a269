"""Each cause of a lost lock is reported to its holder, in each way of holding a lock.

A loss is reported by ``lost``, ``check()``, one call of ``on_lost``, ``LockLostError`` at the exit
of a body that succeeded and, in asyncio, the cancellation of the task in the block. The ways of
holding run at the same time, each on its own lock.
"""

from __future__ import annotations

import contextlib
import importlib

import pytest
from support.fronts import do
from support.leftovers import TIDY_FRONTS, until
from support.losing import EXPIRE, HOLDS, LossReport, LossScene, handed_off
from support.proxy import FaultProxy

from redis_lock_decorators import LockLostError, LockNotOwnedError
from redis_lock_decorators.testing import LocalServer

FRONTS = TIDY_FRONTS

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# Causes of a loss. Each makes all the locks lost that are held when it is called.


async def deleted(scene, names, leases, is_notified):
    scene.direct.delete(*[f"sys:lock:{name}" for name in names])


async def flushed(scene, names, leases, is_notified):
    scene.direct.flushall()


async def taken_over(scene, names, leases, is_notified):
    for name in names:
        scene.direct.set(f"sys:lock:{name}", "another")


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


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
async def test_holder_is_notified_of_a_loss(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = LossScene(front, server, proxy)
        found = await _lose_all(scene, name, HOLDS, lose)
        scene.direct.close()

    assert found == {}


async def cut_and_deleted(scene, names, leases, is_notified):
    """Delete the keys and cut the idle connections before the release uses them."""
    await deleted(scene, names, leases, is_notified)
    dying = scene.proxy.in_use()
    scene.direct.client_kill_filter(_type="normal", skipme=True)
    await until(scene.front, lambda: not any(one.is_in_use() for one in dying))


@pytest.mark.parametrize(
    "lose",
    [deleted, flushed, taken_over, restarted, cut_and_deleted],
    ids=lambda lose: lose.__name__,
)
async def test_loss_found_by_the_release_is_reported(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = LossScene(front, server, proxy, expire=30)
        found = await _lose_all(scene, name, HOLDS, lose, ends_at_once=True)
        scene.direct.close()

    assert found == {}


@pytest.mark.parametrize("lose", [deleted, flushed, taken_over])
async def test_loss_is_reported_to_a_holder_that_hands_off(front, name, lose):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = LossScene(front, server, proxy, expire=3, wait="cohort")
        found = await _lose_all(scene, name, [handed_off], lose, ends_at_once=True)
        scene.direct.close()

    assert found == {}


@pytest.mark.parametrize("lose", [deleted, flushed, taken_over, not_renewed, restarted])
async def test_loss_of_a_renewed_redispy_lock_is_reported_at_its_exit(front, name, lose, caplog):
    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = LossScene(front, server, proxy)
        lock_class = importlib.import_module(f"{front.package.__name__}.lock").Lock
        lock = lock_class(scene.client, f"sys:lock:{name}", EXPIRE, auto_renew=True)

        def is_notified():
            return "was lost before its release" in caplog.text

        with pytest.raises(LockNotOwnedError):
            async with front.held(lock):
                await lose(scene, [name], [], is_notified)
                await until(front, is_notified)
        scene.direct.close()


async def test_end_of_max_hold_is_reported(front, server, name):
    async def outstay(scene, names, leases, is_notified):
        await until(front, is_notified)

    with LocalServer() as server, FaultProxy(server.host, server.port) as proxy:
        scene = LossScene(front, server, proxy, max_hold=2.0)
        found = await _lose_all(scene, name, HOLDS, outstay)
        scene.direct.close()

    assert found == {}


async def _lose_all(scene, name, holds, lose, ends_at_once=False):
    """Hold a lock in each way and lose all; return the reports that are missing, by way.

    The body runs until the loss is reported. With ``ends_at_once`` it ends before that, so that
    the release must find the loss.
    """
    reports = {hold.__name__: LossReport() for hold in holds}
    entered = []

    def work(hold):
        mine, key = reports[hold.__name__], f"{name}:{hold.__name__}"

        async def run():
            try:
                await hold(scene, key, mine, lambda: entered.append(key))
            except LockLostError as error:
                mine.at_exit = error
            return

        return run

    async def break_all():
        await until(scene.front, lambda: len(entered) == len(holds))
        await scene.front.sleep(0.4)  # for other waiters to arrive
        names = [f"{name}:{hold.__name__}" for hold in holds]
        leases = [mine.lease for mine in reports.values()]
        await lose(scene, names, leases, lambda: all(mine.calls for mine in reports.values()))
        scene.is_lost = ends_at_once

    results = await scene.front.elsewhere(break_all, *[work(hold) for hold in holds])
    await scene.front.sleep(0.3)  # a second call of on_lost would arrive by now
    assert [error for error in results if error is not None] == []
    found = {hold: mine.lacks(scene.front, not ends_at_once) for hold, mine in reports.items()}
    return {hold: lacks for hold, lacks in found.items() if lacks}


@pytest.mark.parametrize("method", ["script", "transaction"])
async def test_min_hold_applies_while_memory_is_used_up(front, server, direct, name, method):
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

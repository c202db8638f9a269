"""The first renewals on a server that does not know their script, far away."""

from __future__ import annotations

from functools import partial

from support.distance import distant
from support.fronts import do
from support.leftovers import ASYNCIO

FRONTS = [ASYNCIO]  # threads connect once more for renewals, which takes longer
ROUND_TRIP, EXPIRE, HOLDERS = 0.25, 1.5, 20


async def test_no_lease_is_lost_if_the_script_is_unknown(front, server, name):
    with distant(server.port, ROUND_TRIP) as place:
        client = front.client(place)
        server.client().script_flush()
        locks = [
            front.package.RedisLock(f"{name}:{number}", client=client, expire=EXPIRE)
            for number in range(HOLDERS)
        ]

        async def use(lock):
            await do((await do(lock.acquire())).release())

        await use(locks[0])  # a connection is open, and the server knows the other scripts

        async def hold(lock):
            lease = await do(lock.acquire())
            await front.sleep(2 * EXPIRE)
            await do(lease.release())

        assert await front.elsewhere(*[partial(hold, lock) for lock in locks]) == [None] * HOLDERS

"""However far away the server is: who waits enters, and no lease that is renewed is lost.

Round trips are given as shares of the lease.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
import redis
from support.distance import distant
from support.fronts import do
from support.leftovers import TIDY_FRONTS

from redis_lock_decorators import RedisLock, _lua
from redis_lock_decorators.lock import Lock

FRONTS = TIDY_FRONTS
WAYS = ("steady", "poll", "queue", "cohort", "drop-in")
#: How long the block lasts, in leases: without a renewal its lease would be lost.
STAY = 1.3


@pytest.fixture(autouse=True)
def learn(server):
    """Have a server know our scripts, as it does for the rest of its life after their first use."""

    def learn(client):
        for file in Path(_lua.__file__).parent.glob("*.lua"):
            if file.stem != "promote":  # a part of others
                client.script_load(_lua.script(file.stem).text)

    learn(server.client())
    return learn


class Visitors:
    """Several who want the same locks, one lock for each way to wait.

    Each has a client of its own, but for those who share a place in a queue.
    """

    def __init__(self, front, place, name, expire):
        self.front, self.place, self.name, self.expire = front, place, name, expire
        self.told, self.inside, self.entered = [], set(), []
        self.clients = {}

    def lock(self, way, number):
        whose = way if way == "cohort" else (way, number)
        client = self.clients.get(whose) or self.front.client(self.place)
        self.clients[whose] = client
        name, patience = f"{self.name}:{way}", 60 * self.expire
        if way == "drop-in":
            kind = Lock if self.front.name == "blocking" else self._asyncio_lock()
            return kind(client, f"sys:lock:{name}", timeout=self.expire, sleep=0.02)
        options = {} if way == "steady" else {"wait": way}
        return self.front.package.RedisLock(
            name,
            client=client,
            expire=self.expire,
            acquire_time=patience,
            on_lost=lambda *client_state: self.told.append((way, client_state)),
            **options,
        )

    def _asyncio_lock(self):
        from redis_lock_decorators.asyncio.lock import Lock

        return Lock

    async def visit(self, way, number, times):
        lock = self.lock(way, number)
        # Not the first thing a program does: the opening of a connection is no part of a lease.
        await do(self.clients[way if way == "cohort" else (way, number)].ping())
        stay = STAY if way != "drop-in" else 0.3  # nobody renews this one
        for _ in range(times):
            async with self.front.held(lock):
                assert way not in self.inside
                self.inside.add(way)
                await self.front.sleep(stay * self.expire)
                self.inside.discard(way)
                self.entered.append((way, number))

    async def all(self, visitors, times):
        works = [
            lambda way=way, number=number: self.visit(way, number, times)
            for way, number in itertools.product(WAYS, range(visitors))
        ]
        errors = [error for error in await self.front.elsewhere(*works) if error is not None]
        assert (errors, self.told) == ([], [])
        assert len(self.entered) == len(WAYS) * visitors * times


@pytest.mark.parametrize("share", [0.01, 0.15])
async def test_nobody_is_lost_on_a_long_way(front, server, name, share):
    expire = 2.0
    with distant(server.port, share * expire) as place:
        await Visitors(front, place, name, expire).all(visitors=2, times=1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("expire", [1.0, 3.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.15])
async def test_nobody_is_lost_on_a_long_way_for_long(front, server, name, share, expire):
    with distant(server.port, share * expire) as place:
        await Visitors(front, place, name, expire).all(visitors=3, times=3)


@pytest.mark.parametrize(
    ("share", "options"), [(0.15, {}), (0.05, {"db": 1, "password": "secret"})], ids=str
)
def test_the_first_renewal_is_in_time_on_a_long_way(frail, learn, name, share, options):
    """Also where a connection takes round trips to open, for the password and the database."""
    learn(frail.client())
    frail.client().config_set("requirepass", options.get("password", ""))
    expire = 3.0
    with distant(frail.port, share * expire) as place:
        client = redis.Redis(place.host, place.port, **options)
        locks = [RedisLock(f"{name}:{n}", client=client, expire=expire) for n in range(3)]
        leases = [lock.acquire() for lock in locks]
        time.sleep(1.8 * expire)

        assert not any(lease.lost for lease in leases)
        for lease in leases:
            lease.release()

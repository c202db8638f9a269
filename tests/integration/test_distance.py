"""With a distant server, waiters enter and no renewed lease is lost.

``share`` is the duration of a round trip as a share of the lease.
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
METHODS = ("default", "poll", "queue", "cohort", "drop-in")
#: The length of the block, in leases: without a renewal its lease would be lost.
HOLD = 1.3


@pytest.fixture(autouse=True)
def learn(server):
    """Load the scripts, as they are after their first use."""

    def learn(client):
        for file in Path(_lua.__file__).parent.glob("*.lua"):
            if file.stem in _lua.INCLUDED:  # the others are included in these
                client.script_load(_lua.script(file.stem).text)

    learn(server.client())
    return learn


class Lockers:
    """Several users of the same locks, one lock for each method of waiting.

    Each has its own client, except for those of a cohort, unless all share one.
    """

    def __init__(self, front, place, name, expire, shared=False):
        self.front, self.place, self.name, self.expire = front, place, name, expire
        self.shared = shared
        self.losses, self.inside, self.entered = [], set(), []
        self.clients = {}

    def client(self, method, number):
        owner = None if self.shared else method if method == "cohort" else (method, number)
        if owner not in self.clients:
            self.clients[owner] = self.front.client(self.place)
        return self.clients[owner]

    def lock(self, method, number):
        client = self.client(method, number)
        name, acquire_time = f"{self.name}:{method}", 60 * self.expire
        if method == "drop-in":
            kind = Lock if self.front.name == "blocking" else self._asyncio_lock()
            return kind(client, f"sys:lock:{name}", timeout=self.expire, sleep=0.02)
        options = {} if method == "default" else {"wait": method}
        return self.front.package.RedisLock(
            name,
            client=client,
            expire=self.expire,
            acquire_time=acquire_time,
            on_lost=lambda *report: self.losses.append((method, report)),
            **options,
        )

    def _asyncio_lock(self):
        from redis_lock_decorators.asyncio.lock import Lock

        return Lock

    async def use(self, method, number, times):
        lock = self.lock(method, number)
        # The time to open a connection is not part of what is tested.
        await do(self.client(method, number).ping())
        hold = HOLD if method != "drop-in" else 0.3  # this one is not renewed
        for _ in range(times):
            async with self.front.held(lock):
                assert method not in self.inside
                self.inside.add(method)
                await self.front.sleep(hold * self.expire)
                self.inside.discard(method)
                self.entered.append((method, number))

    async def all(self, users, times, methods=METHODS):
        works = [
            lambda method=method, number=number: self.use(method, number, times)
            for method, number in itertools.product(methods, range(users))
        ]
        errors = [error for error in await self.front.elsewhere(*works) if error is not None]
        assert (errors, self.losses) == ([], [])
        assert len(self.entered) == len(methods) * users * times


@pytest.mark.parametrize("share", [0.01, 0.15])
async def test_no_lease_is_lost_with_a_distant_server(front, server, name, share):
    expire = 2.0
    with distant(server.port, share * expire) as place:
        lockers = Lockers(front, place, name, expire)
        await lockers.all(users=2, times=1)

    assert lockers.losses == []


async def test_grants_last_several_round_trips_of_a_distant_server(front, server, name):
    """Five round trips are longer than other grants, and the requests share one connection."""
    expire = 6.0
    with distant(server.port, 0.15 * expire) as place:
        lockers = Lockers(front, place, name, expire, shared=True)
        await lockers.all(users=2, times=1, methods=("queue", "cohort"))

    assert lockers.losses == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("expire", [1.0, 3.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.15])
async def test_no_lease_is_lost_for_long_with_a_distant_server(front, server, name, share, expire):
    with distant(server.port, share * expire) as place:
        lockers = Lockers(front, place, name, expire)
        await lockers.all(users=3, times=3)

    assert lockers.losses == []


@pytest.mark.parametrize(
    ("share", "options"), [(0.15, {}), (0.05, {"db": 1, "password": "secret"})], ids=str
)
def test_first_renewal_is_in_time_with_a_distant_server(frail, learn, name, share, options):
    """Opening a connection costs more round trips with a password and a database number."""
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

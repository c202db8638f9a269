"""Waiters of one cohort at a real server."""

from __future__ import annotations

import time

from support.fronts import do
from support.leftovers import PATIENCE, until


def cohort_lock(front, server, name, **options):
    options = {"expire": 2.5, "acquire_time": PATIENCE, "wait": "cohort", **options}
    return front.package.RedisLock(name, client=front.client(server), **options)


async def waited_for(front, lease, count):
    """Wait until the cohort of a lease has ``count`` waiters."""
    await until(front, lambda: len(lease._claim.cohort._waiting) >= count)


def restart_lease(lease):
    """Treat a lease as acquired just now, even if the others took long to join."""
    lease._claim.cohort.since = time.monotonic()


class Crowd:
    """Waiters for one lock, with the order in which they entered and their leases."""

    def __init__(self, front, hold=0.0):
        self.front, self.hold = front, hold
        self.entered, self.identifiers, self.inside = [], [], 0

    async def enter(self, lock, number):
        async with self.front.held(lock) as lease:
            self.inside += 1
            assert self.inside == 1
            assert lease.remaining() > 0
            self.entered.append(number)
            self.identifiers.append(lease.identifier)
            try:
                await self.front.sleep(self.hold)
            finally:
                self.inside -= 1

    def one(self, lock, number):
        return lambda: self.enter(lock, number)

    async def in_order(self, lock, lease, count, then=None):
        """Start waiters one by one behind a held lease, then release it."""

        def arrive(number):
            async def work():
                await waited_for(self.front, lease, number)
                await self.enter(lock, number)

            return work

        async def release_keys():
            await waited_for(self.front, lease, count)
            if then is not None:
                await then()
            restart_lease(lease)
            await do(lease.release())

        return await self.front.elsewhere(*map(arrive, range(count)), release_keys)

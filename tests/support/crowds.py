"""Waiters of one process that compete for a lock."""

from __future__ import annotations

from support.fronts import do
from support.leftovers import PATIENCE
from support.queues import queued


class Crowd:
    """Waiters of one process at one lock, and the order in which they entered."""

    def __init__(self, front, lock, acquire_time=PATIENCE):
        self.front, self.lock, self.acquire_time = front, lock, acquire_time
        self.entered, self.inside, self.most = [], 0, 0

    async def enter(self, number):
        """Enter once; returns whether that was in time."""
        lease = await do(self.lock.acquire(self.acquire_time))
        if lease is None:
            return False
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.append(number)
        await self.front.sleep(0)
        self.inside -= 1
        await do(lease.release())
        return True

    def waiters(self, count):
        return [lambda number=number: self.enter(number) for number in range(count)]


async def all_served(front, lock, others, count=5, **options):
    """Run ``count`` waiters for a lock while ``others`` runs; each enters, one at a time."""
    crowd = Crowd(front, lock, **options)
    results = await front.elsewhere(*crowd.waiters(count), others)
    assert results[:count] == [True] * count, results
    assert not isinstance(results[-1], BaseException), results[-1]
    assert crowd.most == 1
    return crowd


async def held_for_a_crowd(front, direct, lock, name, count=5, **options):
    """Run waiters for a lock that is held until all of them have joined its queue."""
    lease = await do(lock.acquire())

    async def release_keys():
        await queued(front, direct, name, count)
        await do(lease.release())

    return await all_served(front, lock, release_keys, count, **options)

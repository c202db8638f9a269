"""Cancellation of a task at each of its suspensions."""

from __future__ import annotations

import asyncio


class Suspensions:
    """Runs a coroutine and cancels its task the n-th time it suspends."""

    def __init__(self, number):
        self.left = number

    async def run(self, work):
        task = asyncio.ensure_future(self._counted(work))
        self.task = task
        return await task

    async def _counted(self, work):
        return await _Counting(work, self)

    def step(self):
        self.left -= 1
        if self.left == -1:
            asyncio.get_running_loop().call_soon(self.task.cancel)

    @property
    def happened(self):
        return self.left < 0


class _Counting:
    def __init__(self, work, suspensions):
        self.work = work
        self.suspensions = suspensions

    def __await__(self):
        steps = self.work.__await__()
        value, error = None, None
        while True:
            try:
                waits = steps.throw(error) if error else steps.send(value)
            except StopIteration as stop:
                return stop.value
            self.suspensions.step()
            value, error = None, None
            try:
                value = yield waits
            except BaseException as thrown:
                error = thrown


async def cancel_everywhere(make_work, check):
    """Cancel a work at each of its suspensions, check after each, and return their number."""
    for number in range(200):
        suspensions = Suspensions(number)
        try:
            await suspensions.run(make_work())
            cancelled = False
        except asyncio.CancelledError:
            cancelled = True
        await check(cancelled)
        if not suspensions.happened:
            return number
    raise AssertionError("the work does not end")

"""Renewal of leases on the event loop of the program."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from weakref import ref

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background.loop_ends import at_end, generators_closed
from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.background.supervised import BackgroundTasks, background_tasks
from redis_lock_decorators._io.background.timers import LoopTimer, sleep
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import is_running_here
from redis_lock_decorators._io.per_client import PerClient


class CallerLoop:
    """The running event loop, which belongs to the program.

    Other threads use it too: the garbage collector may close a coroutine of one of its tasks on any
    thread, also on one where another event loop runs.
    """

    now = staticmethod(monotonic)
    random = staticmethod(random.random)
    start = staticmethod(start)
    sleep = staticmethod(sleep)
    timer = LoopTimer

    def __init__(self) -> None:
        self.phase = random.random()
        self.renewer = Renewer(self)
        self.wanted: set[Any] = set()
        self.clients: PerClient[Any] = PerClient()
        self._loop = asyncio.get_running_loop()
        self._tasks = background_tasks()
        # Weakly: this has the states of clients, whose connections a cycle would keep open.
        self._at_end = at_end(partial(_end, self._tasks, ref(self)))
        self._timer = LoopTimer(self.renewer.tick)
        self.start_error = ""

    def wake_at(self, when: float) -> None:
        if when < math.inf:
            self._timer.set(when)

    def is_current(self) -> bool:
        """Whether it is the lease loop of the running event loop."""
        return is_running_here(self._loop)

    def check(self, claim: Claim | None = None) -> None:
        """Do nothing: an event loop needs no thread."""

    def refuse_unrenewed(self, claim: Claim) -> None:
        """Do nothing: an event loop needs no thread."""

    def begin(self) -> None:
        """Do nothing: the program runs the event loop."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop, from any thread; never if the loop is closed."""
        self._tasks.call(function)

    def port(self, port: Any) -> Any:
        return cast(AsyncioPort, port).ahead()

    def stop_if_idle(self) -> None:
        """Do nothing: the program runs the event loop."""

    def close_unused(self) -> None:
        """Close the connections of clients that nothing uses.

        A client that outlives the event loop would otherwise keep them open on the server, until
        the garbage collector runs.
        """
        for state in self.clients.values():
            state.close_unused()


async def _end(tasks: BackgroundTasks, find: Callable[[], CallerLoop | None]) -> None:
    """Complete the releases of an event loop, and report the leases that are not released."""
    await tasks.unlisted_ended()
    lease_loop = find()
    if lease_loop is None:
        return
    await generators_closed()
    if lease_loop.renewer.held():
        before = set(tasks.tasks())
        lease_loop.renewer.end(_is_left)
        if calls := [task for task in tasks.tasks() if task not in before]:
            await asyncio.wait(calls, timeout=ROUND_TRIP)  # of async ``on_lost``
    lease_loop.close_unused()


def _is_left(claim: Claim) -> bool:
    """Whether no running task is in a block of the claim."""
    task: Any = claim.owner() if isinstance(claim.owner, ref) else None
    return task is None or task.done()

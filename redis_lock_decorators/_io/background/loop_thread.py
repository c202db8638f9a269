"""The background thread of blocking programs: an event loop, and ports on it to their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any

from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background.hubs import are_threads_green
from redis_lock_decorators._io.background.log_thread import hand_over
from redis_lock_decorators._io.background.spare_thread import Spare
from redis_lock_decorators._io.background.supervised import start
from redis_lock_decorators._io.background.timers import LoopTimer, sleep
from redis_lock_decorators._io.background.worker import NAME, BackgroundWorker, Owner
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.background_client import CALL
from redis_lock_decorators._io.transport.background_ports import BackgroundPorts

#: Seconds for works to end that were cancelled.
PARTING = 1.0
#: Seconds between two looks whether the greenlets of a thread have ended.
LOOK = 0.05


class WorkerLoop(asyncio.SelectorEventLoop):
    """An event loop that knows whose it is, and waits for no handler of log records."""

    place: BackgroundWorker

    #: Monotonic seconds, also while a test has frozen the clock of event loops.
    time = staticmethod(monotonic)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        log = partial(super().default_exception_handler, context)
        if not hand_over(log):
            log()


class LoopThread(BackgroundWorker):
    """A thread with an event loop, from its first call until there is nothing to ring for.

    With two spare ones: to connect, and to tell of losses. A program that has come to the limit of
    its threads, or to its end, keeps its locks.

    If greenlets are put in the place of threads meanwhile, its leases are looked after by greenlets
    of this same thread, unless those of the program's own have taken over before.
    """

    start = staticmethod(start)
    sleep = staticmethod(sleep)
    timer = staticmethod(LoopTimer)

    def __init__(self, owner: Owner, before: BackgroundWorker | None = None) -> None:
        super().__init__(owner, before)
        self._ports = BackgroundPorts()
        self._spares = {
            CALL: Spare(f"{NAME} spare", queues=True),
            f"{NAME} on_lost": Spare(f"{NAME} spare", queues=False),
        }
        self._becomes_green = False
        self._loop = Context().run(WorkerLoop)  # it has a handle of its own
        self._loop.place = self

    def is_fit(self) -> bool:
        return not are_threads_green()

    def leave(self) -> None:
        self._accept(self._loop.stop)

    def lend(self, work: str, function: Callable[[], object]) -> bool:
        spare = self._spares.get(work)
        return spare is not None and spare.call(function)

    def port(self, port: Any) -> AsyncioPort:
        """The port on this event loop to the client of a blocking port."""
        return self._ports.port_for(port)

    def _accept(self, function: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, context=Context())
        except RuntimeError:  # the event loop is closed
            return False
        return True

    def _tick(self) -> None:
        if self.is_fit():
            super()._tick()
        else:
            self._becomes_green = True
            self.leave()

    def _end(self) -> None:
        super()._end()
        if self._becomes_green and not self._owner.is_idle():
            self._owner.go_on()
            while (place := self._owner.present()) is not None:
                self._outlast(place)

    def _outlast(self, place: BackgroundWorker) -> None:
        """Let the greenlets of this thread run, which end with it."""
        while not place.has_ended:
            self._pause(LOOK)

    def _work(self) -> None:
        for spare in self._spares.values():
            spare.begin()
        self._loop.run_forever()

    def _dismantle(self) -> None:
        for spare in self._spares.values():
            spare.end()
        try:
            if self._is_working:
                self._loop.run_until_complete(self._tidy())
        finally:
            self._loop.close()

    async def _tidy(self) -> None:
        works = asyncio.all_tasks() - {asyncio.current_task()}
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works, timeout=PARTING)
        self._ports.close()

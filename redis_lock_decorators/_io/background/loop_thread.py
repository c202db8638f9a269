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
from redis_lock_decorators._io.background.spare_thread import SpareThread
from redis_lock_decorators._io.background.starting import start
from redis_lock_decorators._io.background.timers import LoopTimer, sleep
from redis_lock_decorators._io.background.worker import NAME, BackgroundWorker, Owner
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.background_ports import BackgroundPorts
from redis_lock_decorators._io.transport.thread_calls import CALL

#: Seconds that cancelled tasks have to end.
CANCEL_TIMEOUT = 1.0
#: Seconds between two checks whether the greenlets of a thread have ended.
POLL_INTERVAL = 0.05


class WorkerLoop(asyncio.SelectorEventLoop):
    """The event loop of a worker, which does not wait for log handlers."""

    worker: BackgroundWorker

    #: Monotonic seconds, even while a test has frozen the clock of event loops.
    time = staticmethod(monotonic)

    _is_made = False

    def __init__(self) -> None:
        super().__init__()
        self._is_made = True

    def __del__(self) -> None:
        if self._is_made:  # otherwise a signal handler interrupted its constructor
            super().__del__()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        log = partial(super().default_exception_handler, context)
        if not hand_over(log):
            log()


class LoopThread(BackgroundWorker):
    """A thread with an event loop, from its first call until there is no background work.

    It has two spare threads, one to open connections and one to report losses. So a program
    keeps its locks while it cannot start threads, or shuts down.

    If greenlets replace threads while it runs, greenlets of this same thread take over its leases,
    unless greenlets of the program's own threads have done so before.
    """

    start = staticmethod(start)
    sleep = staticmethod(sleep)
    timer = staticmethod(LoopTimer)

    def __init__(self, owner: Owner, previous: BackgroundWorker | None = None) -> None:
        super().__init__(owner, previous)
        self._ports = BackgroundPorts()
        self._spares = {
            CALL: SpareThread(f"{NAME} spare", queues=True),
            f"{NAME} on_lost": SpareThread(f"{NAME} spare", queues=False),
        }
        self._becomes_green = False
        self._loop = Context().run(WorkerLoop)  # the loop has a handle, which keeps its context
        self._loop.worker = self

    def is_fit(self) -> bool:
        return not are_threads_green()

    def stop(self) -> None:
        self._enqueue(self._loop.stop)

    def run_on_spare(self, name: str, function: Callable[[], object]) -> bool:
        spare = self._spares.get(name)
        return spare is not None and spare.call(function)

    def port(self, port: Any) -> AsyncioPort:
        """The port on this event loop to the client of a blocking port."""
        return self._ports.port_for(port)

    def _enqueue(self, function: Callable[[], object]) -> bool:
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
            self.stop()

    def _end(self) -> None:
        super()._end()
        if self._becomes_green and not self._owner.is_idle():
            self._owner.resume()
            while (worker := self._owner.current_worker()) is not None:
                self._run_greenlets_of(worker)

    def _run_greenlets_of(self, worker: BackgroundWorker) -> None:
        """Pause this thread until a worker has ended whose greenlets run on it."""
        while not worker.has_ended:
            self._pause(POLL_INTERVAL)

    def _work(self) -> None:
        for spare in self._spares.values():
            spare.begin()
        self._loop.run_forever()

    def _clean_up(self) -> None:
        for spare in self._spares.values():
            spare.end()
        try:
            if self._is_working:
                self._loop.run_until_complete(self._cancel_tasks())
        finally:
            self._loop.close()

    async def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)
        self._ports.close()

"""The event loops on which leases are renewed: the caller's own, or one in the background."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast
from weakref import ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.background import Timer
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._flow.retries import ROUND_TRIP
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background import helper_threads
from redis_lock_decorators._io.background.atomic_slot import AtomicSlot
from redis_lock_decorators._io.background.greenlets import GreenletWorker
from redis_lock_decorators._io.background.hubs import (
    MOST_HUBS,
    are_threads_green,
    forget_oldest,
    hub,
)
from redis_lock_decorators._io.background.loop_ends import at_end, generators_closed
from redis_lock_decorators._io.background.loop_thread import LoopThread
from redis_lock_decorators._io.background.supervised import BackgroundTasks, background_tasks, start
from redis_lock_decorators._io.background.thread_checks import refuse_threadless
from redis_lock_decorators._io.background.timers import LoopTimer, sleep
from redis_lock_decorators._io.background.worker import (
    BackgroundWorker,
    can_start_threads,
    running_worker,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import (
    LoopKey,
    forget_closed,
    is_running_here,
    running_loop,
)
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
        self._at_end = at_end(partial(_end, self._tasks, ref(self.renewer)))
        self._timer = LoopTimer(self.renewer.tick)

    def wake_at(self, when: float) -> None:
        if when < math.inf:
            self._timer.set(when)

    def is_current(self) -> bool:
        """Whether it is the lease loop of the running event loop."""
        return is_running_here(self._loop)

    def check(self, claim: Claim | None = None) -> None:
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


async def _end(tasks: BackgroundTasks, find: Callable[[], Renewer | None]) -> None:
    """Complete the releases of an event loop, and report the leases that are not released."""
    await tasks.unlisted_ended()
    renewer = find()
    if renewer is None or not renewer.held():
        return
    await generators_closed()
    before = set(tasks.tasks())
    renewer.end(_is_left)
    if calls := [task for task in tasks.tasks() if task not in before]:
        await asyncio.wait(calls, timeout=ROUND_TRIP)  # of async ``on_lost``


def _is_left(claim: Claim) -> bool:
    """Whether no running task is in a block of the claim."""
    task: Any = claim.owner() if isinstance(claim.owner, ref) else None
    return task is None or task.done()


class BackgroundLoop:
    """The background work of all threads of a process, done by a worker while there is any.

    Where threads are greenlets, each hub has one: greenlets cannot wait for those of another hub.

    Attributes:
        wanted: the subscribers that have waiters.
        clients: the states of the clients that are used by these threads.
    """

    now = staticmethod(monotonic)
    random = staticmethod(random.random)

    def __init__(self) -> None:
        self.process = fork.process_id
        self.phase = random.random()
        self.renewer = Renewer(self)
        #: any thread
        self.wanted: set[Any] = set()
        self.clients: PerClient[Any] = PerClient()
        self._worker: AtomicSlot[BackgroundWorker] = AtomicSlot()
        self._last: BackgroundWorker | None = None
        self._has_threads = False

    def wake_at(self, when: float) -> None:
        helper_threads.begin()
        if when < math.inf:
            self._send(lambda worker: worker.wake_at(when))
        else:
            self.stop_if_idle()

    def call(self, function: Callable[[], object]) -> None:
        self.check()
        self._send(lambda worker: worker.call(function))

    def is_current(self) -> bool:
        """Whether a worker runs this code."""
        return running_worker() is not None

    def check(self, claim: Claim | None = None) -> None:
        """Refuse leases that need a thread, and waiting, where no thread can work for them.

        Raises:
            ConfigurationError: this is an isolated subinterpreter, or the program is half patched.
        """
        if not self._has_threads:
            refuse_threadless(claim)
            self._has_threads = True

    def begin(self) -> None:
        """Start the worker's thread if there are calls for which none could be started."""
        worker = self._worker.get()
        if worker is not None:
            worker.begin()

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        return _worker_here().start(work, ended)

    async def sleep(self, seconds: float) -> None:
        await _worker_here().sleep(seconds)

    def timer(self, call: Callable[[], None]) -> Timer:
        return _worker_here().timer(call)

    def port(self, port: Any) -> Any:
        return _worker_here().port(port)

    def stop_if_idle(self) -> None:
        """End the worker if there is no background work; called on the worker itself."""
        # Calls that wait for a thread keep the worker. The last log record may have none yet.
        helper_threads.begin()
        worker, running = self.current_worker(), running_worker()
        if (
            can_start_threads()
            and self.is_idle()
            and worker is not None
            and running is not None
            and running.shares_tasks_with(worker)
        ):
            self.retire(worker)
            worker.stop()

    def is_idle(self) -> bool:
        """Whether there is no background work."""
        return not self.wanted and not len(self.renewer) and not helper_threads.is_stuck()

    def current_worker(self) -> BackgroundWorker | None:
        return self._worker.get()

    def retire(self, worker: BackgroundWorker) -> None:
        """Stop sending work to a worker; called on the worker itself, or if it is unfit."""
        self._worker.remove(worker)
        self._has_threads = False  # sockets may be replaced before the next worker starts

    def resume(self) -> None:
        """Do what an ended worker has left; called on a worker that ends or starts."""
        self.renewer.forget_wake_up()
        helper_threads.begin()
        for subscriber in list(self.wanted):
            self.call(subscriber.open)
        if len(self.renewer):
            self.wake_at(self.now())

    def _send(self, call: Callable[[BackgroundWorker], bool]) -> None:
        # In a forked child, copies of the parent's greenlets may get here.
        while self.process == fork.process_id and not call(self._present()):
            pass

    def _present(self) -> BackgroundWorker:
        """The current worker; a new one if there is none that is fit."""
        worker = self.current_worker()
        if worker is not None and not worker.is_fit() and running_worker() is not worker:
            self.retire(worker)
            if worker.dismiss():
                self.resume()
            worker = self.current_worker()
        if worker is None:
            kind = GreenletWorker if are_threads_green() else LoopThread
            new = kind(self, self._last)
            worker = self._worker.setdefault(new)
            if worker is new:
                self._last = new
            else:
                new.dismiss()
        return worker


def _worker_here() -> BackgroundWorker:
    """The worker that runs this code, which is background work."""
    return cast(BackgroundWorker, running_worker())


class _Loops:
    """The lease loops of this process."""

    def __init__(self) -> None:
        #: any thread
        self.threads: dict[object, BackgroundLoop] = {}
        self.loops: dict[LoopKey, CallerLoop] = {}
        self._process = fork.process_id
        self._inherited: list[dict[object, BackgroundLoop]] = []

    def of(self, hub: object) -> BackgroundLoop:
        """The lease loop of a hub; 0 is that of all native threads."""
        if self._process != fork.process_id:
            self._start_anew()
        lease_loop = self.threads.get(hub)
        if lease_loop is None:
            lease_loop = self.threads.setdefault(hub, BackgroundLoop())
            forget_oldest(self.threads, MOST_HUBS)
        return lease_loop

    def _start_anew(self) -> None:
        """Forget the parent's loops in a forked child, which has none of their threads."""
        # Keep them from the garbage collector: their finalizers would use the parent's sockets.
        self._inherited.append(self.threads)
        self.threads = {}
        self._process = fork.process_id


_loops = _Loops()


def background_loop() -> BackgroundLoop:
    """The lease loop of all threads of this process, or of the running greenlet's hub."""
    return _loops.of(hub())


def caller_loop() -> CallerLoop:
    """The lease loop of the running event loop."""
    key, lease_loops = running_loop(), _loops.loops
    if key not in lease_loops:
        forget_closed(lease_loops)
        lease_loops[key] = CallerLoop()
    return lease_loops[key]

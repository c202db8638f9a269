"""Renewal of leases in the background of a program's threads."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.background import Timer
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.background import helper_threads
from redis_lock_decorators._io.background.atomic_slot import AtomicSlot
from redis_lock_decorators._io.background.greenlets import GreenletWorker
from redis_lock_decorators._io.background.hubs import are_threads_green
from redis_lock_decorators._io.background.loop_thread import LoopThread
from redis_lock_decorators._io.background.thread_checks import refuse_threadless
from redis_lock_decorators._io.background.worker import (
    BackgroundWorker,
    can_start_threads,
    running_worker,
)
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators.errors import LockError, shown


class BackgroundLoop:
    """The background work of all threads of a process, done by a worker while there is any.

    Where threads are greenlets, each hub has one: greenlets cannot wait for those of another hub.

    Attributes:
        wanted: the subscribers that have waiters.
        clients: the states of the clients that are used by these threads.
        start_error: why the last thread of a worker could not be started; "" if it was.
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
        self.start_error = ""

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

    def refuse_unrenewed(self, claim: Claim) -> None:
        """Refuse a lease that no thread renews, as none could be started; not at exit.

        Raises:
            LockError: the system allows no more threads.
        """
        if not self.start_error:  # mostly
            return
        worker = self.current_worker()
        # If a thread was started, the attempt of another one has failed later.
        has_failed = worker is not None and not worker.has_started
        if has_failed and threading.main_thread().is_alive():
            raise LockError(
                f"lock {shown(claim.lock_name)} was not acquired, as no thread can be started to "
                f"renew it ({self.start_error}): end other threads or raise their limit, or use "
                "auto_renew=False, without on_lost and hooks",
                claim.lock_name,
            )

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

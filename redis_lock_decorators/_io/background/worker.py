"""Background work of blocking programs: done by a thread that runs while there is work."""

from __future__ import annotations

import _thread
import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Protocol

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.background import Timer
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.background.atomic_slot import AtomicSlot
from redis_lock_decorators._io.background.hubs import is_in_hub
from redis_lock_decorators._rules.redaction import safe_text

#: The name of the thread.
NAME = "redis_lock_decorators"
#: Seconds between two checks whether the previous worker has ended.
POLL_INTERVAL = 0.001


class Owner(Protocol):
    """The lease loop whose background work a worker does.

    Attributes:
        renewer: renews leases on the worker.
        start_error: why the last thread could not be started; "" if it was.
    """

    renewer: Renewer
    start_error: str

    def is_idle(self) -> bool:
        """Whether there is no background work."""

    def retire(self, worker: BackgroundWorker) -> None:
        """Stop sending work to this worker: it ends."""

    def resume(self) -> None:
        """Have the next worker do what an ended one has left."""

    def current_worker(self) -> BackgroundWorker | None:
        """The worker that new work is sent to."""


#: The error in place of an exception from outside that comes while a thread waits for its start.
WAIT_INTERRUPTED = "release unlocked lock"


class WorkerThread(threading.Thread):
    """A thread of a worker, which ``running_worker`` finds by its attribute."""

    def __init__(
        self, worker: BackgroundWorker, work: Callable[[], object], name: str = NAME
    ) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self.worker = worker


class BackgroundWorker:
    """Does background work on one thread, which starts with the first call.

    Only one worker of an owner runs at a time: each waits for the end of the previous one.

    Attributes:
        has_started: a thread was started.
        has_ended: its thread has ended, or will never start.
    """

    def __init__(self, owner: Owner, previous: BackgroundWorker | None = None) -> None:
        #: any thread
        self.has_started = self.has_ended = False
        self._has_warned = False
        # The token of the thread that runs this worker. Several threads may be started: the first
        # one to set its token runs, the others return.
        self._runner: AtomicSlot[object] = AtomicSlot()
        #: the worker's thread only
        self._owner = owner
        self._timer = self.timer(self._tick)
        self._previous = previous
        self._process = fork.process_id
        self._is_working = False

    def call(self, function: Callable[[], object]) -> bool:
        """Call a function on the worker, from any thread; False if the worker has ended."""
        if not self._enqueue(function):
            return False
        self.begin()
        return True

    def wake_at(self, when: float) -> bool:
        """Have the renewer tick by this time, from any thread; False if the worker has ended."""
        if running_worker() is self:
            self._timer.set(when)
            return True
        return self.call(partial(self._timer.set, when))

    def begin(self) -> None:
        """Start the thread, unless it runs."""
        if self._runner.get() is not None or is_running_worker_unfit():
            return
        if is_in_hub():  # starting a thread waits for it, which a hub must not
            _thread.start_new_thread(self.begin, ())
            return
        try:
            Context().run(WorkerThread(self, self._run).start)
            self.has_started, self._owner.start_error = True, ""
        except RuntimeError as error:
            outside = error.__context__
            if str(error) == WAIT_INTERRUPTED and outside is not None:
                self.has_started, self._owner.start_error = True, ""
                raise outside from None
            self._owner.start_error = safe_text(error)
            self._owner.renewer.forget_wake_up()  # so the next lease asks for a thread again
            if not self._has_warned:  # too many threads, or the interpreter shuts down
                self._has_warned = True
                log.warning(
                    "cannot start the background thread: locks are not renewed and losses not "
                    "reported: %s",
                    safe_text(error),
                )

    def dismiss(self) -> bool:
        """End the worker, from any thread; True if its thread had not started."""
        if not self._is_first(object()):
            self.stop()
            return False
        self._clean_up()
        self.has_ended = True
        return True

    def is_fit(self) -> bool:
        """Whether the worker suits the current kind of threads: greenlets may replace them."""
        raise NotImplementedError

    def run_on_spare(self, name: str, function: Callable[[], object]) -> bool:
        """Run the target of a thread that could not start on a spare one; False if none is free."""
        return False

    def shares_tasks_with(self, other: BackgroundWorker) -> bool:
        """Whether what this worker has started continues on the other."""
        return other is self

    def stop(self) -> None:
        """Make the thread end, from any thread."""
        raise NotImplementedError

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        """Run work in the background; called on the worker."""
        raise NotImplementedError

    async def sleep(self, seconds: float, /) -> None:
        """Pause work that runs on the worker."""
        raise NotImplementedError

    def timer(self, call: Callable[[], None]) -> Timer:
        """A timer that calls a function on the worker."""
        raise NotImplementedError

    def port(self, port: Any) -> Any:
        """The port by which work on the worker reaches the client of a blocking port."""
        raise NotImplementedError

    def _run(self) -> None:
        """The target of the thread."""
        token = object()
        try:
            if self._is_first(token):
                self._is_working = True
                self._wait_for_previous()
                self._work()
        finally:
            if self._runner.get() is token and self._process == fork.process_id:
                self._end()

    def _is_first(self, token: object) -> bool:
        return self._runner.setdefault(token) is token

    def _wait_for_previous(self) -> None:
        previous, self._previous = self._previous, None
        if previous is not None:
            while not previous.has_ended:
                self._pause(POLL_INTERVAL)
            self._enqueue(self._owner.resume)

    def _end(self) -> None:
        self._owner.retire(self)
        try:
            self._clean_up()
        finally:
            try:
                if self.is_fit():
                    self._owner.resume()
            finally:
                self.has_ended = True

    def _tick(self) -> None:
        # Its loop runs once more to end its tasks: what begins then would never end.
        if self._owner.current_worker() is self:
            self._owner.renewer.tick()

    def _enqueue(self, function: Callable[[], object]) -> bool:
        """Have the thread call a function; False if the worker has ended."""
        raise NotImplementedError

    def _work(self) -> None:
        """Make the enqueued calls until the worker is stopped."""
        raise NotImplementedError

    def _clean_up(self) -> None:
        """Cancel and close what is left."""

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def running_worker() -> BackgroundWorker | None:
    """The worker whose thread or event loop runs this code."""
    # Check the event loop first: the current thread is unknown after greenlets replaced threads.
    loop = asyncio._get_running_loop()
    found: BackgroundWorker | None = None if loop is None else getattr(loop, "worker", None)
    found = found or getattr(threading.current_thread(), "worker", None)
    return found if found is None or found._process == fork.process_id else None


def is_waiting_refused() -> bool:
    """Whether the running code must not wait, as it would block what ends its wait.

    True in finalizers and client hooks that run in the background or in a hub of greenlets.
    """
    return running_worker() is not None or is_in_hub()


def is_running_worker_unfit() -> bool:
    """Whether greenlets replaced threads after this worker's thread started.

    Greenlets that it started would end with its thread.
    """
    worker = running_worker()
    return worker is not None and not worker.is_fit()


#: Python 3.12.0 and 3.12.1 start no thread after the main thread has ended.
NEEDS_MAIN_THREAD = sys.version_info[:3] in ((3, 12, 0), (3, 12, 1))


def can_start_threads() -> bool:
    """Whether another worker can be started after this one has ended."""
    return not NEEDS_MAIN_THREAD or threading.main_thread().is_alive()

"""Where work for blocking programs is done in the background: a thread that comes and goes."""

from __future__ import annotations

import _thread
import asyncio
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
from redis_lock_decorators._io.background.hubs import is_in_hub
from redis_lock_decorators.errors import ConfigurationError

#: What the thread is called.
NAME = "redis_lock_decorators"
#: Seconds between two looks whether the thread before has ended.
MOMENT = 0.001
#: What the first thread of a place is noted under.
FIRST = "first"


class Owner(Protocol):
    """Who has the background work done.

    Attributes:
        renewer: looks after leases at the place.
    """

    renewer: Renewer

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""

    def retire(self, place: BackgroundWorker) -> None:
        """Send nothing more to a place that ends."""

    def go_on(self) -> None:
        """Have done what a place that ended has left."""

    def present(self) -> BackgroundWorker | None:
        """The place that has the work done now."""


class Worker(threading.Thread):
    """A thread that works for a place."""

    def __init__(
        self, place: BackgroundWorker, work: Callable[[], object], name: str = NAME
    ) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self.place = place


class BackgroundWorker:
    """A place for background work. It has one thread, from the first call until it ends.

    Only one place of a process works at a time: the next waits for the end of the one before.

    Attributes:
        has_ended: its thread does nothing any more.
    """

    def __init__(self, owner: Owner, before: BackgroundWorker | None = None) -> None:
        self.has_ended = False
        self._owner = owner
        self._timer = self.timer(self._tick)
        self._before = before
        self._process = fork.number
        self._is_working = False
        self._has_complained = False
        # Whoever is the first there is the thread: of several that were started the others end at
        # once. To come there is one step, so who is interrupted after it still knows that it is he.
        self._first: dict[str, object] = {}

    def call(self, function: Callable[[], object]) -> bool:
        """Call a function in the background, from any thread; False if the place has ended."""
        if not self._accept(function):
            return False
        self.begin()
        return True

    def wake_at(self, when: float) -> bool:
        """Have the keeper tick by this time, from any thread; False if the place has ended."""
        if here() is self:
            self._timer.set(when)
            return True
        return self.call(partial(self._timer.set, when))

    def begin(self) -> None:
        """Have a thread, if there is none yet."""
        if self._first or is_here_unfit():
            return
        if is_in_hub():  # to start a thread is to wait for it
            _thread.start_new_thread(self.begin, ())
            return
        try:
            Context().run(Worker(self, self._be).start)
        except RuntimeError as error:
            self._owner.renewer.forget_wake_up()  # the next lease asks again
            if not self._has_complained:  # too many threads, or the interpreter is going down
                self._has_complained = True
                log.warning("held locks are not renewed and no loss is told: %s", error)

    def dismiss(self) -> bool:
        """End it, from any thread; whether its thread had not begun."""
        if not self._is_first(object()):
            self.leave()
            return False
        self._dismantle()
        self.has_ended = True
        return True

    def is_fit(self) -> bool:
        """Whether it can work with threads as they are now: greenlets may have come after it."""
        raise NotImplementedError

    def lend(self, work: str, function: Callable[[], object]) -> bool:
        """Have a function called that no thread could be started for; False if nobody is left.

        Args:
            work: what the thread would have been called.
        """
        return False

    def works_for(self, other: BackgroundWorker) -> bool:
        """Whether what this place has begun goes on at the other."""
        return other is self

    def leave(self) -> None:
        """End the thread; from any thread."""
        raise NotImplementedError

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> object:
        """Do work in the background; from there."""
        raise NotImplementedError

    async def sleep(self, seconds: float, /) -> None:
        """Pause a work."""
        raise NotImplementedError

    def timer(self, call: Callable[[], None]) -> Timer:
        """An alarm that rings here."""
        raise NotImplementedError

    def port(self, port: Any) -> Any:
        """The port by which works here reach the client of a blocking port."""
        raise NotImplementedError

    def _be(self) -> None:
        """Be the thread, if no other is."""
        mine = object()
        try:
            if self._is_first(mine):
                self._is_working = True
                self._follow()
                self._work()
        finally:
            if self._first.get(FIRST) is mine and self._process == fork.number:
                self._end()

    def _is_first(self, mine: object) -> bool:
        return self._first.setdefault(FIRST, mine) is mine

    def _follow(self) -> None:
        """Take over from the place before, when it has ended."""
        before, self._before = self._before, None
        if before is not None:
            while not before.has_ended:
                self._pause(MOMENT)
            self._accept(self._owner.go_on)

    def _end(self) -> None:
        self._owner.retire(self)
        try:
            self._dismantle()
        finally:
            try:
                if self.is_fit():
                    self._owner.go_on()
            finally:
                self.has_ended = True

    def _tick(self) -> None:
        self._owner.renewer.tick()

    def _accept(self, function: Callable[[], object]) -> bool:
        """Have a function called by the thread; False if there will be none any more."""
        raise NotImplementedError

    def _work(self) -> None:
        """Do what is asked for, until it is time to leave."""
        raise NotImplementedError

    def _dismantle(self) -> None:
        """Cancel and close what is left."""

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def here() -> BackgroundWorker | None:
    """The place that the current thread, or its event loop, works for."""
    # Where greenlets were put in the place of threads meanwhile, threads are not what they were.
    loop = asyncio._get_running_loop()
    found: BackgroundWorker | None = None if loop is None else getattr(loop, "place", None)
    return found or getattr(threading.current_thread(), "place", None)


def is_waiting_refused() -> bool:
    """Whether others, who would end a wait, cannot go on while the running code waits.

    It is a finalizer, or a hook of a client, that runs in the background or where greenlets switch.
    """
    return here() is not None or is_in_hub()


def is_here_unfit() -> bool:
    """Whether greenlets came after the current thread: those that it started would end with it."""
    place = here()
    return place is not None and not place.is_fit()


def refuse_threadless() -> None:
    """Refuse to promise background work where Python allows no thread for it.

    Raises:
        ConfigurationError: this is an isolated subinterpreter.
    """
    try:
        threading.Thread(daemon=True)
    except RuntimeError as error:
        raise ConfigurationError(
            f"no thread can renew locks or wait for them in this interpreter ({error}): use "
            'auto_renew=False, no on_lost, and wait="poll" here'
        ) from error

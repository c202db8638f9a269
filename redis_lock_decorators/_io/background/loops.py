"""The lease loops of this process: one for each event loop of the program, one for its threads."""

from __future__ import annotations

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.background_loop import BackgroundLoop
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.hubs import MOST_HUBS, forget_oldest, hub
from redis_lock_decorators._io.closed_loops import LoopKey, forget_closed, running_loop


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

"""Another thread that is in a block of a lock object."""

from __future__ import annotations

import threading
from typing import Any


class Holder:
    """Is in a block of the lock, on a thread of its own, while this block runs."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._entered, self._left = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._entered.wait(10)

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join(10)

    def _hold(self) -> None:
        with self._lock:
            self._entered.set()
            self._left.wait(10)

"""Wait for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds until a condition that should become true counts as failed.
PATIENCE = 30.0


def until(
    is_so: Callable[[], object],
    patience: float = PATIENCE,
    problem: Callable[[], str] = lambda: "the condition did not become true",
) -> None:
    """Wait until a condition is true, for ``patience`` seconds at most."""
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, problem()
        time.sleep(0.005)

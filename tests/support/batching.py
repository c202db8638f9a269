"""The modules of the request batcher, for tests that replace its clock or interrupt its lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redis_lock_decorators._io.transport import batch_sender, batcher, exchange_watch

MODULES = (batch_sender, exchange_watch, batcher)
FILES = {module.__file__ for module in MODULES}


def use_clock(clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the batcher read its time from a clock."""
    for module in MODULES:
        monkeypatch.setattr(module, "monotonic", clock)

"""The program gets signals as at a terminal, also if the tests run in the background of a shell."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

#: What a shell ignores for programs in its background, and ``nohup`` for all.
IGNORED_THERE = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """No signal is ignored by the programs that a test starts."""
    former = {number: signal.getsignal(number) for number in IGNORED_THERE}
    for number, handler in former.items():
        if handler is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)

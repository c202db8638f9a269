"""Exceptions of signal handlers at each line: each acquisition still has one beginning and end."""

from __future__ import annotations

import contextlib
from collections import defaultdict

import pytest
from support.interruptions import (
    RAISED,
    Busy,
    LostInHandler,
    interrupt_every_line,
    raise_by_turns,
)
from support.leftovers import PATIENCE

from redis_lock_decorators import LockLostError, LockTimeoutError, RedisLock
from redis_lock_decorators._io.background.hook_calls import flush

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
#: All sequences of events that an acquisition may have, without those of renewals.
COMPLETE = {
    *(("Acquiring", "TimedOut"), ("Acquiring", "AcquireFailed")),
    *(("Acquiring", "Acquired", end) for end in ("Released", "HandedOver", "Lost")),
}


@pytest.fixture(autouse=True, params=[kind for kind in RAISED if kind not in (Busy, LostInHandler)])
def kind(request, monkeypatch):
    """The class of the exception that is raised; not one that the tests suppress."""
    raise_by_turns(monkeypatch, request.param)


@pytest.fixture
def client(server):
    return server.client()


class Recorder:
    """A hook that records the sequence of each acquisition."""

    def __init__(self):
        self.sequences = defaultdict(list)

    def __call__(self, event):
        if not type(event).__name__.startswith("Renew"):
            self.sequences[event.acquisition].append(type(event).__name__)

    def assert_complete(self):
        assert flush(PATIENCE)
        found = {tuple(sequence) for sequence in self.sequences.values()}
        assert found <= COMPLETE
        return found


def test_interrupted_block_has_one_beginning_and_end(client, name):
    recorder = Recorder()
    lock = RedisLock(name, client=client, hooks=[recorder])

    def work(interruption):
        with interruption, lock:
            pass

    assert interrupt_every_line(work) > 50
    assert {found[-1] for found in recorder.assert_complete()} >= {"Released", "AcquireFailed"}


def test_interrupted_block_whose_lock_is_lost_has_one_end(client, name):
    recorder = Recorder()
    lock = RedisLock(name, client=client, hooks=[recorder])

    def work(interruption):
        with interruption, contextlib.suppress(LockLostError), lock as lease:
            client.delete(lease.key)

    assert interrupt_every_line(work) > 50
    assert {found[-1] for found in recorder.assert_complete()} >= {"Lost", "AcquireFailed"}


def test_interrupted_attempt_on_a_busy_lock_has_one_end(client, name):
    recorder = Recorder()
    lock = RedisLock(name, client=client, hooks=[recorder], acquire_time=0)
    client.set(f"sys:lock:{name}", "another")

    def work(interruption):
        with interruption, contextlib.suppress(LockTimeoutError), lock:
            pass

    assert interrupt_every_line(work) > 30
    assert recorder.assert_complete() == {("Acquiring", "TimedOut"), ("Acquiring", "AcquireFailed")}

"""A RuntimeError of a signal handler is not mistaken for one of the interpreter."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.simulation import new_claim

from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._io.background.wakeups import Gate

KEY = b"a"


class Interrupted(RuntimeError):
    """An exception of a signal handler."""


#: Errors after which nothing is repeated.
EXTERNAL = [Interrupted("during iteration"), RuntimeError("time is up"), RecursionError("too deep")]
every_external_error = pytest.mark.parametrize(
    "error", EXTERNAL, ids=lambda error: type(error).__name__
)


class Changing(OrderedDict[Any, Any]):
    """A dictionary that is changed or interrupted during its first iteration."""

    error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return super().__iter__()

    def items(self) -> Any:
        iter(self)
        return super().items()


def changing(error: Exception, item: Any) -> Changing:
    found = Changing({item: None})
    found.error = error
    return found


@every_external_error
def test_interrupt_of_an_iteration_over_arrivals_is_raised(error: Exception) -> None:
    arrivals, claim = ArrivalOrder(), new_claim("a")
    arrivals._claims[KEY] = changing(error, claim)

    with pytest.raises(type(error)):
        arrivals.is_first(KEY, claim)


def test_arrivals_changed_by_another_thread_are_iterated_again() -> None:
    arrivals, claim = ArrivalOrder(), new_claim("a")
    changed = RuntimeError("OrderedDict mutated during iteration")
    arrivals._claims[KEY] = changing(changed, claim)

    assert arrivals.is_first(KEY, claim)


@every_external_error
def test_interrupt_of_an_iteration_over_a_cohort_is_raised(error: Exception) -> None:
    cohort, local = Cohort(), object()
    waiting: Any = changing(error, local)
    cohort._waiting = waiting
    with pytest.raises(type(error)):
        cohort.first(1000.0)

    waiting.error = error
    with pytest.raises(type(error)):
        cohort.is_near(local)  # type: ignore[arg-type]


class InterruptedLock:
    """A lock whose release raises an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        raise self.error


@every_external_error
def test_interrupt_of_the_opening_of_a_gate_is_raised(error: Exception) -> None:
    gate = Gate()
    gate._lock = InterruptedLock(error)  # type: ignore[assignment]

    with pytest.raises(type(error)):
        gate.open()


def test_gate_opened_by_another_thread_at_the_same_time_is_open() -> None:
    gate = Gate()
    gate._lock = InterruptedLock(RuntimeError("release unlocked lock"))  # type: ignore[assignment]

    gate.open()

    assert gate._lock.locked()


@pytest.mark.skipif(int(redis.__version__.partition(".")[0]) < 4, reason="has no asyncio")
@every_external_error
def test_interrupt_of_a_look_up_of_the_running_task_is_raised(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis_lock_decorators.asyncio._cancellation import running
    from redis_lock_decorators.asyncio._task_tokens import current_owner

    assert running() is None

    def interrupted() -> None:
        raise error

    monkeypatch.setattr(asyncio, "current_task", interrupted)
    for look_up in (running, current_owner):
        with pytest.raises(type(error)):
            look_up()

"""``on_lost`` is called once, although an exception from outside interrupts its call."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any
from weakref import ref

import pytest
from support.interruptions import Interrupted, Interruption, Limited, interrupt_every_line

from redis_lock_decorators._shared.on_lost import OnLostCall

both_kinds = pytest.mark.parametrize("kind", [Interrupted, Limited])


def new_call(calls: list[str]) -> OnLostCall:
    return OnLostCall(lambda lease, why: calls.append(why), "a", lambda context, work: None)


@both_kinds
def test_call_that_is_interrupted_at_any_line_is_made_once(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interruption, "kind", kind)

    def work(interruption: Interruption) -> None:
        calls: list[str] = []
        call = new_call(calls)
        try:
            with interruption:
                call.make(None, "it expired")
        finally:
            call.make(None, "it expired")  # as the outer exit does
            assert calls == ["it expired"], interruption.location

    assert interrupt_every_line(work) > 5


class BetweenSteps(Interruption):
    """Raises before the n-th instruction of ``_call``, as a signal handler within a line."""

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = frame.f_code.co_name == "_call"
        return self._line

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        if event == "opcode":
            self.left -= 1
            if self.left == -1:
                raise self.kind
        return self._line


def test_call_that_is_interrupted_within_a_line_is_made_once() -> None:
    for number in range(100):
        calls: list[str] = []
        call, interruption = new_call(calls), BetweenSteps(number)
        with suppress(Interrupted), interruption:
            call.make(None, "it expired")
        call.make(None, "it expired")  # as the outer exit does
        assert calls == ["it expired"], number
        if not interruption.happened:
            break

    assert 5 < number < 99


def test_loss_that_is_reported_within_on_lost_is_not_reported_again() -> None:
    calls: list[str] = []

    def on_lost(lease: object, why: str) -> None:
        calls.append(why)
        call.make(lease, why)

    call = OnLostCall(on_lost, "a", lambda context, work: None)
    call.make(None, "it expired")

    assert calls == ["it expired"]


def test_exception_of_on_lost_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def on_lost(lease: object, why: str) -> None:
        raise ValueError("no such table")

    OnLostCall(on_lost, "a", lambda context, work: None).make(None, "it expired")

    assert "no such table" in caplog.text


def test_time_limit_of_a_signal_handler_is_raised_out_of_on_lost() -> None:
    def handler(number: int, frame: object) -> None:
        raise Limited

    def on_lost(lease: object, why: str) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(Limited):
            OnLostCall(on_lost, "a", lambda context, work: None).make(None, "it expired")
    finally:
        signal.signal(signal.SIGINT, before)


# The call from the renewer


class Slots:
    """A callable without weak references."""

    __slots__ = ()

    def __call__(self, lease: object, why: str) -> None:
        raise AssertionError


def detached(on_lost: Any) -> Any:
    return OnLostCall(on_lost, "a", lambda context, work: None).detached()


def test_detached_call_is_the_same_call() -> None:
    calls: list[str] = []

    def on_lost(lease: object, why: str) -> None:
        calls.append(why)

    call = OnLostCall(on_lost, "a", lambda context, work: None)
    other = call.detached()()
    assert other is not None

    other.make(None, "it expired")
    call.make(None, "it expired")

    assert calls == ["it expired"]


CALLS: list[str] = []


def test_detached_call_calls_a_deleted_function_without_references() -> None:
    call = detached(lambda lease, why: CALLS.append(why))()

    assert call is not None
    call.make(None, "it expired")
    assert CALLS.pop() == "it expired"


class Part:
    """An object of a namespace."""


CODE = """
def on_lost(lease, why):
    raise AssertionError
"""


def namespace() -> tuple[dict[str, Any], Any]:
    """Return the globals of ``exec``, and a weak reference to an object in them."""
    return {"__name__": "redis_lock_of_test", "part": (part := Part())}, ref(part)


def test_detached_call_does_not_keep_the_namespace_of_a_function() -> None:
    made, part = namespace()
    exec(CODE, made)  # noqa: S102
    call = detached(made["on_lost"])
    assert call() is not None

    made = {}
    gc.collect()

    assert part() is None
    assert call() is None


def test_detached_call_does_not_keep_a_module_that_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, part = namespace()
    module = ModuleType(made["__name__"])
    vars(module).update(made)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(CODE, vars(module))  # noqa: S102
    call = detached(vars(module).pop("on_lost"))
    gc.collect()
    assert call() is not None

    monkeypatch.undo()
    del made, module
    gc.collect()

    assert part() is None
    assert call() is None


def test_detached_call_does_not_keep_what_on_lost_refers_to() -> None:
    calls: list[str] = []
    calls_of = [detached(lambda lease, why: calls.append(why)), detached(Slots())]

    assert [call() for call in calls_of] == [None, None]

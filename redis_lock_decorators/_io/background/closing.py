"""Detect that a coroutine is being closed, as by the garbage collector, and so must not await."""

from __future__ import annotations

import gc
import inspect
import sys
from types import TracebackType
from typing import Any


def is_being_closed() -> bool:
    """Whether the caller, a coroutine, handles the GeneratorExit by which it is being closed.

    Or an error that has replaced it: code between the await and the caller may fail while it
    cleans up, as the reset of a context variable does in another context.

    An async generator that is being closed may await: its ``aclose()`` is awaited. That raises
    GeneratorExit at a ``yield`` of the generator, and at no other place. The same is true of the
    ``close()`` of a plain generator that a running coroutine calls.
    """
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None and not _is_from_generator(error.__traceback__)


def is_unawaited(coroutine: Any) -> bool:
    """Whether a coroutine is suspended at a future that no task has begun to wait for.

    It has ignored the GeneratorExit by which it was being closed, and will not continue. A task
    that receives a future from its coroutine resets the future's mark in the same step.
    """
    at, inner = coroutine, coroutine
    while inner is not None:
        at, inner = inner, _inner(inner)
    frame = getattr(at, "gi_frame", None)  # before Python 3.11 it is an object of its own
    futures = [at, *gc.get_referents(at, frame)] if hasattr(at, "__next__") else [at]
    return any(getattr(future, "_asyncio_future_blocking", None) is True for future in futures)


def _inner(awaiting: Any) -> Any:
    """What a coroutine, or a generator-based one, awaits; None if that is not known."""
    if inspect.iscoroutine(awaiting):
        return awaiting.cr_await
    return awaiting.gi_yieldfrom if inspect.isgenerator(awaiting) else None


def _is_from_generator(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    flags = 0 if trace is None else trace.tb_frame.f_code.co_flags
    is_plain = flags & inspect.CO_GENERATOR and not flags & inspect.CO_ITERABLE_COROUTINE
    return bool(is_plain or flags & inspect.CO_ASYNC_GENERATOR)

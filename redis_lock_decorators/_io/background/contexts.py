"""Work whose callbacks do not keep the context of the code that caused it."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def in_empty_context(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Return the result of ``work``, whose steps run in an empty context.

    asyncio keeps the context in which a connection is opened until the connection is closed.
    """
    context, step = Context(), partial(work.send, None)
    while True:
        try:
            awaited = context.run(step)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            step = partial(work.send, (yield awaited))
        except GeneratorExit:
            with suppress(Exception):  # its clean-up fails, as on a closed event loop
                context.run(work.close)
            raise
        except BaseException as error:
            step = partial(work.throw, error)

"""The wrappers of ``@redis_lock`` for async functions and async generators."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from redis_lock_decorators._rules.callables import is_pending, refuse_unrun
from redis_lock_decorators._rules.naming import Namer
from redis_lock_decorators._shared.lease_base import loss
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators.asyncio._attempts import Attempt
from redis_lock_decorators.asyncio._cancellation import running
from redis_lock_decorators.asyncio.lease import Lease, abandon

#: Seconds between two checks whether a generator that is being closed elsewhere has ended.
CHECK_INTERVAL = 0.005


def coroutine(
    function: Callable[..., Any], config: LockConfig, namer: Namer, busy: Callable[..., Any] | None
) -> Any:
    """Wrap an async function: each call runs under a lock."""

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        attempt = Attempt(config, namer(args, kwargs))
        try:
            async with attempt as refused:
                if refused is None:
                    return refuse_unrun(function, await function(*args, **kwargs))
        except BaseException:
            await abandon(attempt.lease)
            raise
        if busy is not None:
            answer = busy(*args, **kwargs)
            return await answer if is_pending(answer) else answer
        try:
            raise refused
        finally:
            del refused  # it refers to this frame by its trace

    return wrapper


def async_generator(
    function: Callable[..., Any], config: LockConfig, namer: Namer, busy: Callable[..., Any] | None
) -> Any:
    """Wrap an async generator: each iteration runs under a lock, to its end."""

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        attempt = Attempt(config, namer(args, kwargs))
        try:
            async with attempt as refused:
                if refused is None:
                    steps = _Steps(attempt.lease, function(*args, **kwargs))
                    try:
                        item = await steps.send(None)
                        while True:
                            try:
                                sent = yield item
                            except GeneratorExit:
                                raise
                            except BaseException as error:
                                item = await steps.throw(error)
                            else:
                                item = await steps.send(sent)
                    except StopAsyncIteration:
                        return
                    finally:
                        await steps.close()
        except BaseException:
            await abandon(attempt.lease)
            raise
        if busy is not None:
            async for item in _items(busy(*args, **kwargs)):
                yield item
            return
        try:
            raise refused
        finally:
            del refused  # it refers to this frame by its trace

    return wrapper


class _Steps:
    """An async generator whose steps, and no other code, run with its lease as the current one.

    Each step may run in another task. With ``cancel_on_lost``, once the lease is lost the next step
    raises ``LockLostError`` in the generator instead.
    """

    def __init__(self, lease: Lease, steps: AsyncGenerator[Any, Any]) -> None:
        self._lease = lease
        self._steps = steps
        self._has_begun = False
        self._closed: list[bool] = []  # not empty once ``close`` has ended
        lease._suspend()

    async def send(self, value: Any) -> Any:
        if self._lease.lost and self._lease._options.cancel_on_lost:
            return await self.throw(loss(self._lease))
        if self._has_begun:
            return await self._step(self._steps.asend(value))
        self._has_begun = True
        return await self._step(_first_step(self._steps, self._closed))

    async def throw(self, error: BaseException) -> Any:
        return await self._step(self._steps.athrow(error))

    async def close(self) -> None:
        while getattr(self._steps, "ag_running", False):  # collected, and being closed
            await asyncio.sleep(CHECK_INTERVAL)
        try:
            await self._step(self._steps.aclose())
        finally:
            self._closed.append(True)

    async def _step(self, step: Awaitable[Any]) -> Any:
        lease = self._lease
        lease._claim.owner = running()
        lease._enter()
        try:
            return await step
        except asyncio.CancelledError as error:
            if lease._leave(error):
                lease.check()
            raise
        finally:
            lease._suspend()


def _first_step(steps: AsyncGenerator[Any, Any], closed: list[bool]) -> Awaitable[Any]:
    """Return the first step of a generator, hidden from ``loop.shutdown_asyncgens()``.

    That closes all generators concurrently, and so does the event loop with those of a reference
    cycle. This one must be closed by the wrapper, which holds the lock until it has ended.
    """
    hooks = sys.get_asyncgen_hooks()
    finalizer = hooks.finalizer and partial(_finalize, closed, hooks.finalizer)
    try:
        sys.set_asyncgen_hooks(firstiter=None, finalizer=finalizer)
        return steps.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _finalize(
    closed: list[bool], finalizer: Callable[[Any], object], steps: AsyncGenerator[Any, Any]
) -> None:
    """Have the event loop close a generator that is collected, unless its wrapper will do it."""
    if closed:
        finalizer(steps)


async def _items(answer: Any) -> AsyncIterator[Any]:
    """Iterate over the result of ``on_busy``: None, an iterable or an async iterable."""
    if inspect.isawaitable(answer):
        answer = await answer
    if hasattr(answer, "__aiter__"):
        async for item in answer:
            yield item
    else:
        for item in answer or ():
            yield item

"""What @redis_lock makes of async functions and async generators."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from redis_lock_decorators.asyncio.holder import running
from redis_lock_decorators.asyncio.lease import Attempt, Lease, abandon
from redis_lock_decorators.lease_facts import loss
from redis_lock_decorators.plan import Plan
from redis_lock_decorators.rules.callables import is_pending, refuse_unrun
from redis_lock_decorators.rules.naming import Namer


def coroutine(
    function: Callable[..., Any], plan: Plan, namer: Namer, busy: Callable[..., Any] | None
) -> Any:
    """The async function, run under a lock."""

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        attempt = Attempt(plan, namer(args, kwargs))
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
    function: Callable[..., Any], plan: Plan, namer: Namer, busy: Callable[..., Any] | None
) -> Any:
    """The async generator, iterated under a lock."""

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        attempt = Attempt(plan, namer(args, kwargs))
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

    Any task may take a step. With ``cancel_on_lost`` none runs once the lease is lost:
    ``LockLostError`` is raised in the generator instead.
    """

    def __init__(self, lease: Lease, steps: AsyncGenerator[Any, Any]) -> None:
        self._lease = lease
        self._steps = steps
        lease._step_out()

    async def send(self, value: Any) -> Any:
        if self._lease.lost and self._lease._options.cancel_on_lost:
            return await self.throw(loss(self._lease))
        return await self._step(self._steps.asend(value))

    async def throw(self, error: BaseException) -> Any:
        return await self._step(self._steps.athrow(error))

    async def close(self) -> None:
        await self._step(self._steps.aclose())

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
            lease._step_out()


async def _items(answer: Any) -> AsyncIterator[Any]:
    """What a busy call's answer holds: nothing, items, or items to come."""
    if inspect.isawaitable(answer):
        answer = await answer
    if hasattr(answer, "__aiter__"):
        async for item in answer:
            yield item
    else:
        for item in answer or ():
            yield item

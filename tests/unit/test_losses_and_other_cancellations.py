"""Whose a cancellation is, if others were handled before, or come together with that by a loss."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.lost_blocks import LONG, is_of_the_loss, soon

from redis_lock_decorators._io.background.finishing import finish
from redis_lock_decorators.asyncio import _cancellation, _repeated_cancellation
from redis_lock_decorators.asyncio._cancellation import BlockTask, running

counted = pytest.mark.skipif(sys.version_info < (3, 11), reason="cancellations are not counted")
#: Whether the block has handled a cancellation before, which stays counted.
HANDLED = [False, True]


class Proxy:
    """An object that refuses to tell its class, as a proxy of something that is gone."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ReferenceError("it is gone")


class Awaitable:
    """An awaitable of the program, with an attribute of the name that asyncio uses."""

    _children = None

    def __init__(self) -> None:
        self._future = asyncio.get_running_loop().create_future()

    def __await__(self) -> Iterator[Any]:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._future._asyncio_future_blocking = True
        return self._future


def block_here() -> BlockTask:
    """Return a block of the running task."""
    here = running()
    assert here is not None
    return BlockTask(here)


async def cancel_beside_loss(block: BlockTask, task: asyncio.Task[Any]) -> None:
    """Cancel the task of a block in the iteration in which its loss does, so that both are one."""
    await asyncio.sleep(0.01)
    block.cancel()
    while not task.cancelling():
        await asyncio.sleep(0)
    task.cancel()


async def fail_when_cancelled() -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        raise ValueError


async def be_cancelled() -> None:
    """Handle a cancellation, which stays counted."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


def test_object_that_refuses_to_tell_its_class_does_not_prevent_the_cancellation() -> None:
    async def body() -> None:
        proxy = Proxy()
        await asyncio.sleep(LONG)
        del proxy

    assert is_of_the_loss(body, soon)


def test_awaitable_of_the_program_does_not_prevent_the_cancellation() -> None:
    async def body() -> None:
        await Awaitable()

    assert is_of_the_loss(body, soon)


def test_exit_stack_that_contains_itself_does_not_prevent_the_cancellation() -> None:
    async def body() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_exit(stack)
            try:
                await asyncio.sleep(LONG)
            finally:
                stack.pop_all()

    assert is_of_the_loss(body, soon)


async def handle_and_await(work: Any) -> None:
    try:
        raise ValueError
    except ValueError:
        await work


async def handle_named_and_await(work: Any) -> None:
    try:
        raise ValueError
    except ValueError as error:
        await work
        raise AssertionError from error


async def await_at_the_end(work: Any) -> None:
    try:
        raise ValueError
    finally:
        await work


async def await_one_that_handles(work: Any) -> None:
    await asyncio.ensure_future(handle_and_await(work))


@pytest.mark.parametrize(
    "body",
    [handle_and_await, handle_named_and_await, await_at_the_end, await_one_that_handles],
)
@pytest.mark.parametrize("work", [asyncio.ensure_future, asyncio.gather, asyncio.shield])
def test_loss_while_an_error_is_handled_and_a_task_is_awaited(body: Any, work: Any) -> None:
    """Before Python 3.11 the cancellation loses its message and its context there."""
    assert is_of_the_loss(lambda: body(work(asyncio.sleep(0.5))), soon)


@pytest.mark.parametrize("module", [_cancellation, _repeated_cancellation])
def test_inspection_that_fails_does_not_prevent_the_cancellation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, module: Any
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("an object of the program")

    monkeypatch.setattr(module, "awaited_by", fail)

    assert is_of_the_loss(lambda: asyncio.sleep(LONG), soon)
    is_inspected = module is _cancellation or _cancellation.SWALLOWS
    assert ("an object of the program" in caplog.text) is is_inspected


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_loss_while_a_timeout_of_the_block_is_handled(handled: bool) -> None:
    async def body() -> None:
        if handled:
            await be_cancelled()
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_outside_cancellation_while_a_timeout_of_the_block_is_handled(handled: bool) -> None:
    """The program cancels the task, and its clean-up exceeds a time-out when the loss comes."""

    async def body() -> None:
        if handled:
            await be_cancelled()
        try:
            await asyncio.sleep(LONG)
        finally:
            async with asyncio.timeout(0.01):
                try:
                    await asyncio.sleep(LONG)
                finally:
                    await asyncio.sleep(LONG)

    async def lose(block: BlockTask, task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.05)
        block.cancel()

    assert not is_of_the_loss(body, lose)


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_loss_while_an_awaited_task_ends_by_its_own_loss(handled: bool) -> None:
    inner: list[BlockTask] = []

    async def child() -> None:
        inner.append(block_here())
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(LONG)

    async def body() -> None:
        if handled:
            await be_cancelled()
        await asyncio.create_task(child())

    async def lose(block: BlockTask, task: object) -> None:
        await asyncio.sleep(0.01)
        inner[0].cancel()
        await asyncio.sleep(0.01)
        block.cancel()

    assert is_of_the_loss(body, lose)


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_group_that_fails_as_the_loss_cancels_it(handled: bool) -> None:
    async def body() -> None:
        if handled:
            await be_cancelled()
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_when_cancelled())
        await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


@counted
def test_outside_cancellation_beside_the_losses_of_nested_blocks() -> None:
    """It comes with the loss of the inner block, and the outer one is lost during the clean-up."""
    inner: list[BlockTask] = []
    taken: list[bool] = []
    cleaning = asyncio.Event()

    async def body() -> None:
        inner.append(block_here())
        try:
            try:
                await asyncio.sleep(LONG)
            finally:
                cleaning.set()
                await asyncio.sleep(LONG)
        except asyncio.CancelledError as error:
            taken.append(inner[0].uncancel(error))
            raise

    async def lose(block: BlockTask, task: asyncio.Task[Any]) -> None:
        await cancel_beside_loss(inner[0], task)
        await cleaning.wait()
        block.cancel()

    assert not is_of_the_loss(body, lose)
    assert taken == [False]


@counted
def test_cancellation_that_an_inner_block_raises_is_not_of_the_outer_loss() -> None:
    """The outer block is lost after the inner one has raised both as one."""
    inner: list[BlockTask] = []
    taken: list[bool] = []
    raised = asyncio.Event()

    async def body() -> None:
        inner.append(block_here())
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError as error:
            taken.append(inner[0].uncancel(error))
            try:
                raise
            finally:
                raised.set()
                await asyncio.sleep(LONG)

    async def lose(block: BlockTask, task: asyncio.Task[Any]) -> None:
        await cancel_beside_loss(inner[0], task)
        await raised.wait()
        block.cancel()

    assert not is_of_the_loss(body, lose)
    assert taken == [False]


@counted
def test_task_of_a_group_does_not_take_the_loss_of_the_outer_block_for_its_own() -> None:
    taken: list[bool] = []
    inner: list[BlockTask] = []

    async def child() -> None:
        inner.append(block_here())
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError as error:
            taken.append(inner[0].uncancel(error))
            raise

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def lose(block: BlockTask, task: object) -> None:
        await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        loop.call_soon(block.cancel)
        loop.call_soon(inner[0].cancel)

    assert is_of_the_loss(body, lose)
    assert taken == [False]


async def clean_up_for_long(cleaning: asyncio.Event) -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        cleaning.set()
        await asyncio.sleep(LONG)


@counted
@pytest.mark.parametrize("handles", ["error", "group"])
def test_outside_cancellation_is_found_though_other_errors_are_handled(handles: str) -> None:
    """The code around, or in the clean-up, handles an error when the loss comes."""
    cleaning = asyncio.Event()

    async def body() -> None:
        if handles == "error":
            try:
                raise ConnectionError
            except ConnectionError:
                await clean_up_for_long(cleaning)
        try:
            await asyncio.sleep(LONG)
        finally:
            try:
                raise BaseExceptionGroup("", [KeyError()])  # noqa: F821  # since 3.11
            except BaseExceptionGroup:  # noqa: F821  # since 3.11
                cleaning.set()
                await asyncio.sleep(LONG)

    async def lose(block: BlockTask, task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(0.01)
        task.cancel()
        await cleaning.wait()
        block.cancel()

    assert not is_of_the_loss(body, lose)


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_loss_while_the_error_of_a_timeout_is_handled(handled: bool) -> None:
    async def body() -> None:
        if handled:
            await be_cancelled()
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(LONG)
        except TimeoutError:
            await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


@counted
@pytest.mark.parametrize("handled", HANDLED)
def test_group_that_fails_in_its_block_as_the_loss_cancels_it(handled: bool) -> None:
    async def body() -> None:
        if handled:
            await be_cancelled()
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with asyncio.TaskGroup() as group:
                group.create_task(fail_when_cancelled())
                await asyncio.sleep(LONG)
        await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


@counted
def test_group_of_a_context_manager_that_fails_as_the_loss_cancels_it() -> None:
    @contextlib.asynccontextmanager
    async def nursery() -> AsyncIterator[Any]:
        async with asyncio.TaskGroup() as group:
            yield group

    async def body() -> None:
        with contextlib.suppress(BaseExceptionGroup):  # noqa: F821  # since 3.11
            async with nursery() as group:
                group.create_task(fail_when_cancelled())
                await asyncio.sleep(LONG)
        await asyncio.sleep(LONG)

    assert is_of_the_loss(body, soon)


@counted
def test_outside_cancellation_of_work_that_is_completed_is_kept_beside_the_loss() -> None:
    """A time-out ends the block's work, which is completed while both come."""

    async def body() -> None:
        async with asyncio.timeout(0.005):
            try:
                await asyncio.sleep(LONG)
            finally:
                await finish(lambda: asyncio.sleep(0.1))

    async def lose(block: BlockTask, task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(0.03)
        task.cancel()
        await asyncio.sleep(0.01)
        block.cancel()

    assert not is_of_the_loss(body, lose)

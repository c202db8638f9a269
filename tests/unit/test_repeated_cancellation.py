"""A loss cancels its task also where a cancellation may be swallowed, as in ``wait_for``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from redis_lock_decorators.asyncio._cancellation import SWALLOWS, BlockTask

LONG = 3600.0

# A call of ``wait_for`` may be cancelled before its first step.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


async def at_once() -> int:
    return 1


async def failing() -> int:
    raise ValueError


async def soon() -> int:
    await asyncio.sleep(0)
    return 1


async def direct(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.wait_for(work(), LONG)


async def nested(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.wait_for(asyncio.wait_for(work(), LONG), LONG)


async def in_task(work: Callable[[], Awaitable[int]]) -> int:
    return await asyncio.ensure_future(direct(work))


async def in_gather(work: Callable[[], Awaitable[int]]) -> int:
    return (await asyncio.gather(direct(work), nested(work)))[0]


async def in_group(work: Callable[[], Awaitable[int]]) -> int:
    async with asyncio.TaskGroup() as group:
        for form in (direct, nested):
            group.create_task(form(work))
    return 1


async def in_next(work: Callable[[], Awaitable[int]]) -> int:
    async def numbers() -> AsyncIterator[int]:
        yield await direct(work)

    return await anext(numbers(), 0)


async def in_generator(work: Callable[[], Awaitable[int]]) -> int:
    async def numbers() -> AsyncIterator[int]:
        yield await direct(work)

    async for number in numbers():
        return number
    raise AssertionError


class Reader:
    """An awaitable of a program's own."""

    def __init__(self, work: Callable[[], Awaitable[int]]) -> None:
        self._work = work

    def __await__(self):
        return direct(self._work).__await__()


async def in_awaitable(work: Callable[[], Awaitable[int]]) -> int:
    return await Reader(work)


FORMS = [direct, nested, in_task, in_gather, in_next, in_generator, in_awaitable]
if sys.version_info >= (3, 11):
    FORMS.append(in_group)
CHILDREN = (in_gather, in_group)


@pytest.mark.parametrize("iterations", range(12))
@pytest.mark.parametrize("work", [at_once, soon, failing])
@pytest.mark.parametrize("form", FORMS)
def test_task_that_always_waits_for_something_that_ends_is_cancelled(
    form: Callable[..., Awaitable[int]], work: Callable[[], Awaitable[int]], iterations: int
) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("this wait_for does not even let other tasks run")
    if work is failing and form in CHILDREN:
        pytest.skip("the block gets that error instead")

    async def endless() -> None:
        while not has_ended:
            with contextlib.suppress(ValueError):
                await form(work)

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(endless())
        for _ in range(iterations):
            await asyncio.sleep(0)
        loop.call_soon(BlockTask(weakref.ref(task)).cancel)
        for _ in range(50):
            await asyncio.sleep(0)
        has_ended.append(True)
        await asyncio.wait([task])

        assert task.cancelled()

    has_ended: list[bool] = []
    asyncio.run(main())


async def only(loop_of: Callable[[], Awaitable[None]]) -> None:
    await loop_of()


async def thrice(loop_of: Callable[[], Awaitable[None]]) -> None:
    await asyncio.wait_for(asyncio.wait_for(asyncio.wait_for(loop_of(), LONG), LONG), LONG)


async def two(loop_of: Callable[[], Awaitable[None]]) -> None:
    await asyncio.gather(loop_of(), loop_of())


async def two_in_waits(loop_of: Callable[[], Awaitable[None]]) -> None:
    waits = [asyncio.wait_for(loop_of(), LONG) for _ in range(2)]
    await asyncio.wait_for(asyncio.gather(*waits), LONG)


async def two_in_group(loop_of: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(loop_of())


async def beside_group(loop_of: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(loop_of())
        await loop_of()


async def without_timeout(loop_of: Callable[[], Awaitable[None]]) -> None:
    await asyncio.wait_for(asyncio.ensure_future(loop_of()), None)


async def deeply(loop_of: Callable[[], Awaitable[None]]) -> None:
    work = loop_of()
    for _ in range(20):
        work = asyncio.wait_for(work, LONG)
    await work


async def group_in_stack(loop_of: Callable[[], Awaitable[None]]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(loop_of())
        await asyncio.sleep(LONG)


async def group_after_clean_up(loop_of: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(loop_of())
        try:
            await asyncio.sleep(LONG)
        finally:
            for _ in range(30):
                await asyncio.sleep(0)


async def groups_in_groups(loop_of: Callable[[], Awaitable[None]]) -> None:
    async def inner() -> None:
        async with group_of_own():
            await group_after_clean_up(loop_of)

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.wait_for(inner(), LONG))
        group.create_task(group_in_stack(loop_of))


@contextlib.asynccontextmanager
async def group_of_own() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(LONG))
        yield group


AROUND = [thrice, two, two_in_waits, without_timeout, deeply]
if sys.version_info >= (3, 11):
    AROUND += [two_in_group, beside_group, group_in_stack, group_after_clean_up, groups_in_groups]


#: The forms with two loops.
TWICE = [two, two_in_waits, two_in_group, beside_group, groups_in_groups]


async def steps_of(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def is_cancelled(
    around: Callable[..., Awaitable[None]], steps: int, iterations: int, later: int | None = None
) -> bool:
    """Cancel endless waits for work of so many steps by a loss, and perhaps ``later`` once more."""
    has_ended: list[bool] = []

    async def endless() -> None:
        while not has_ended:
            await asyncio.wait_for(steps_of(steps), LONG)
            if sys.version_info >= (3, 12):  # there it does not even let other tasks run
                await asyncio.sleep(0)

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(around(endless))
    await steps_of(iterations)
    loop.call_soon(BlockTask(weakref.ref(task)).cancel)
    if later is not None:
        await steps_of(later)
        loop.call_soon(task.cancel)
    await steps_of(200)
    outcome = task.cancelled()
    has_ended.append(True)
    await asyncio.wait([task])
    return outcome


@pytest.mark.parametrize("iterations", range(12))
@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("around", AROUND)
def test_tasks_that_the_cancelled_one_cancels_are_cancelled(
    around: Callable[..., Awaitable[None]], steps: int, iterations: int
) -> None:
    assert asyncio.run(is_cancelled(around, steps, iterations))


@pytest.mark.parametrize("iterations", range(6))
@pytest.mark.parametrize("later", range(6))
@pytest.mark.parametrize("steps", range(4))
def test_task_is_cancelled_although_others_cancel_it_too(
    steps: int, later: int, iterations: int
) -> None:
    assert asyncio.run(is_cancelled(only, steps, iterations, later))


@pytest.mark.parametrize("swallows", [False, True])
def test_clean_up_of_what_is_waited_for_is_cancelled_once(swallows: bool) -> None:
    async def inner() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.append(True)

    async def block() -> None:
        if swallows:
            await direct(soon)
        await asyncio.wait_for(inner(), LONG)

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(block())
        for _ in range(2):
            await asyncio.sleep(0)
        loop.call_soon(BlockTask(weakref.ref(task)).cancel)
        for _ in range(50):
            await asyncio.sleep(0)
        assert task.cancelled()

    cleaned: list[bool] = []
    asyncio.run(main())
    assert cleaned == [True]


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("around", AROUND)
def test_clean_up_by_waits_of_a_cancelled_task_is_not_cancelled(
    around: Callable[..., Awaitable[None]], steps: int
) -> None:
    async def work() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)

    async def cleaning() -> None:
        try:
            await asyncio.wait_for(asyncio.sleep(LONG), LONG)
        finally:
            for _ in range(5):
                await asyncio.wait_for(work(), LONG)
            cleaned.append(True)

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(around(cleaning))
        for _ in range(30):
            await asyncio.sleep(0)
        loop.call_soon(BlockTask(weakref.ref(task)).cancel)
        await asyncio.wait([task])

        assert task.cancelled()

    cleaned: list[bool] = []
    asyncio.run(main())
    assert cleaned == [True] * (2 if around in TWICE else 1)


class Trap:
    """An awaitable that refers to a task, as the iterator of a program's own may."""

    def __init__(self, task: asyncio.Task[object] | None = None) -> None:
        self.task = task or asyncio.current_task()

    def __await__(self) -> Trap:
        return self

    def __iter__(self) -> Trap:
        return self

    def __next__(self) -> None:
        return None


def test_task_that_an_awaitable_refers_to_is_not_cancelled() -> None:
    async def own() -> None:
        await Trap()

    async def main() -> None:
        other = asyncio.ensure_future(asyncio.wait_for(asyncio.sleep(LONG), LONG))

        async def of_other() -> None:
            await Trap(other)

        tasks = [asyncio.ensure_future(own()), asyncio.ensure_future(of_other())]
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            asyncio.get_running_loop().call_soon(BlockTask(weakref.ref(task)).cancel)
        for _ in range(50):
            await asyncio.sleep(0)

        assert [task.cancelled() for task in tasks] == [True, True]
        assert not other.done()
        other.cancel()

    asyncio.run(main())


class CountlessTimeout:
    """A time-out that takes any cancellation for its own, as ``async_timeout`` on Python 3.10."""

    def __init__(self) -> None:
        self._task, self._has_expired = asyncio.current_task(), False

    def expire(self) -> None:
        self._has_expired = True
        self._task.cancel()

    async def __aenter__(self) -> CountlessTimeout:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is asyncio.CancelledError and self._has_expired:
            raise asyncio.TimeoutError


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_loss_within_the_iteration_of_a_timeout_cancels_the_task(
    is_first: bool, is_awaited: bool
) -> None:
    if not SWALLOWS:
        pytest.skip("such time-outs count cancellations")
    entered: list[CountlessTimeout] = []

    async def limited() -> None:
        async with CountlessTimeout() as timeout:
            entered.append(timeout)
            await asyncio.sleep(LONG)

    async def endless() -> None:
        while not has_ended:
            with contextlib.suppress(asyncio.TimeoutError):
                await (asyncio.ensure_future(limited()) if is_awaited else limited())

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(endless())
        for _ in range(5):
            await asyncio.sleep(0)
        block = BlockTask(weakref.ref(task))
        calls = [block.cancel, entered[0].expire]
        for call in calls if is_first else reversed(calls):
            loop.call_soon(call)
        await end(task, has_ended)

        assert task.cancelled()
        assert len(entered) <= 2

    has_ended: list[bool] = []
    asyncio.run(main())


async def end(task: asyncio.Task[None], has_ended: list[bool]) -> None:
    """Wait for a task that was cancelled; end its loop if that was swallowed."""
    for _ in range(60):
        await asyncio.sleep(0)
    has_ended.append(True)
    await asyncio.wait([task], timeout=1)


async def fails(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    raise ValueError


async def cleans_up(steps: int) -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        for _ in range(steps):
            await asyncio.sleep(0)


async def fails_to_clean_up(steps: int) -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        await fails(steps)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no TaskGroup")
@pytest.mark.parametrize("iterations", range(3, 12))
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize(
    "children", [(fails,), (fails, cleans_up), (fails_to_clean_up,), (cleans_up, fails_to_clean_up)]
)
def test_loss_in_a_group_that_fails_cancels_the_task(
    children: tuple[Callable[[int], Awaitable[None]], ...],
    steps: int,
    stays: bool,
    iterations: int,
) -> None:
    async def endless() -> None:
        while not has_ended:
            with contextlib.suppress(ExceptionGroup):  # noqa: F821  # since 3.11
                async with asyncio.TaskGroup() as group:
                    for child in children:
                        group.create_task(child(steps))
                    if stays:
                        await asyncio.sleep(LONG)
            await asyncio.sleep(0)

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(endless())
        for _ in range(iterations):
            await asyncio.sleep(0)
        loop.call_soon(BlockTask(weakref.ref(task)).cancel)
        await end(task, has_ended)

        assert task.cancelled()

    has_ended: list[bool] = []
    asyncio.run(main())


def test_tasks_that_wait_for_each_other_do_not_stop_the_event_loop() -> None:
    async def main() -> None:
        async def one() -> None:
            await asyncio.sleep(0)
            await tasks[1]

        async def two() -> None:
            await tasks[0]

        tasks = [asyncio.ensure_future(one()), asyncio.ensure_future(two())]
        for _ in range(3):
            await asyncio.sleep(0)

        with contextlib.suppress(RecursionError):
            BlockTask(weakref.ref(tasks[0]))._cancel()
        for task in tasks:
            task._log_destroy_pending = False

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()

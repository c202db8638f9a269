"""Kinds of callables, and results that would run after the lock is released."""

import asyncio
import concurrent.futures
import contextlib
import functools
import io
import itertools
import types
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from redis_lock_decorators import redis_lock
from redis_lock_decorators._rules.callables import (
    Kind,
    full_name,
    kind_of,
    refuse_later,
    refuse_unrun,
)
from redis_lock_decorators.errors import ConfigurationError


def plain() -> int:
    return 1


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def label(value: Any) -> str:
    return str(value.name if isinstance(value, Kind) else value.__name__)


KINDS = {
    plain: Kind.PLAIN,
    generator: Kind.GENERATOR,
    coroutine: Kind.COROUTINE,
    async_generator: Kind.ASYNC_GENERATOR,
}
every_kind = pytest.mark.parametrize(("function", "kind"), KINDS.items(), ids=label)


class Methods:
    def plain(self) -> None: ...

    def generator(self) -> Iterator[int]:
        yield 1

    async def coroutine(self) -> None: ...

    async def async_generator(self) -> AsyncIterator[int]:
        yield 1

    @classmethod
    async def of_class(cls) -> None: ...

    @staticmethod
    async def static() -> None: ...


class CoroutineCall:
    async def __call__(self) -> None: ...


class GeneratorCall:
    def __call__(self) -> Iterator[int]:
        yield 1


class AsyncGeneratorCall:
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


class PlainCall:
    def __call__(self) -> None: ...


CALLS = {
    PlainCall: Kind.PLAIN,
    GeneratorCall: Kind.GENERATOR,
    CoroutineCall: Kind.COROUTINE,
    AsyncGeneratorCall: Kind.ASYNC_GENERATOR,
}
every_call = pytest.mark.parametrize(("made", "kind"), CALLS.items(), ids=label)


@every_kind
def test_kind_of_a_function(function: Any, kind: Kind) -> None:
    assert kind_of(function) is kind


@every_kind
def test_kind_of_a_partial_is_that_of_its_function(function: Any, kind: Kind) -> None:
    assert kind_of(functools.partial(function)) is kind
    assert kind_of(functools.partial(functools.partial(function))) is kind


@pytest.mark.parametrize("name", ["plain", "generator", "coroutine", "async_generator"])
def test_kind_of_a_method_is_that_of_its_function(name: str) -> None:
    kind = Kind[name.upper()]

    assert kind_of(getattr(Methods, name)) is kind
    assert kind_of(getattr(Methods(), name)) is kind
    assert kind_of(functools.partial(getattr(Methods(), name))) is kind


@pytest.mark.parametrize("method", [Methods.of_class, Methods().of_class, Methods.static])
def test_kind_of_a_class_or_static_method_is_that_of_its_function(method: Any) -> None:
    assert kind_of(method) is Kind.COROUTINE


@every_call
def test_kind_of_an_object_is_that_of_its_call(made: Any, kind: Kind) -> None:
    assert kind_of(made()) is kind


@every_call
def test_kind_of_a_partial_of_an_object_is_that_of_its_call(made: Any, kind: Kind) -> None:
    assert kind_of(functools.partial(made())) is kind


@pytest.mark.parametrize("function", [len, int, Methods, lambda: None, functools.partial(int)])
def test_builtin_class_or_lambda_is_plain(function: Any) -> None:
    assert kind_of(function) is Kind.PLAIN


def test_attribute_named_like_a_call_does_not_make_the_kind() -> None:
    made = PlainCall()
    made.__call__ = coroutine  # type: ignore[method-assign]

    assert kind_of(made) is Kind.PLAIN


# Names


def test_full_name_is_module_and_qualified_name() -> None:
    assert full_name(plain) == f"{__name__}.plain"
    assert full_name(Methods.plain) == full_name(Methods().plain) == f"{__name__}.Methods.plain"
    assert full_name(PlainCall()) == f"{__name__}.PlainCall"
    assert full_name(functools.partial(functools.partial(plain))) == f"{__name__}.plain"


@pytest.mark.parametrize("function", [len, str.upper, "".join, [].append, print])
def test_builtin_has_a_full_name_too(function: Any) -> None:
    name = full_name(function)

    assert name.endswith(function.__name__)


# Results


@pytest.mark.parametrize(
    "result",
    [None, 0, "", [], {}, iter([]), object(), int, generator, coroutine],
    ids=lambda result: type(result).__name__,
)
def test_finished_result_is_handed_on(result: Any) -> None:
    assert refuse_unrun(plain, result) is result


def test_future_of_a_thread_is_refused_until_it_is_done() -> None:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()

    with pytest.raises(ConfigurationError, match=r"a Future that has not run yet: .* wait"):
        refuse_unrun(plain, future)

    future.set_result(1)
    assert refuse_unrun(plain, future) is future


def test_generator_is_refused_and_closed() -> None:
    result = generator()

    with pytest.raises(ConfigurationError, match="returned a generator that has not run"):
        refuse_unrun(plain, result)

    assert list(result) == []


def test_coroutine_is_refused_and_closed_without_a_warning() -> None:
    result = coroutine()

    with pytest.raises(ConfigurationError, match="returned a coroutine that has not run"):
        refuse_unrun(plain, result)

    with pytest.raises(RuntimeError, match="cannot reuse"):
        result.send(None)


def test_async_generator_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="returned a async_generator that has not run"):
        refuse_unrun(plain, async_generator())


def test_coroutine_made_of_a_generator_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has not run"):
        refuse_unrun(plain, types.coroutine(generator)())


def test_other_objects_that_can_be_awaited_are_results_and_left_alone() -> None:
    class Pool:
        is_closed = False

        def __await__(self) -> Iterator[None]:
            yield

        def close(self) -> None:
            self.is_closed = True

    pool = Pool()

    assert refuse_unrun(plain, pool) is pool
    assert not pool.is_closed


def test_coroutine_like_result_is_refused_and_not_run() -> None:
    class Request(Coroutine[None, None, int]):
        is_closed = False

        def __await__(self) -> Any: ...
        def send(self, value: None) -> None: ...
        def throw(self, *error: Any) -> None: ...

        def close(self) -> None:
            self.is_closed = True

    request = Request()

    with pytest.raises(ConfigurationError, match="returned a Request that has not run"):
        refuse_unrun(plain, request)

    assert not request.is_closed


def test_generator_that_others_use_is_refused_and_not_closed() -> None:
    used = (number for number in (1, 2))
    next(used)

    with pytest.raises(ConfigurationError, match="has not run"):
        refuse_unrun(plain, used)

    assert list(used) == [2]


def test_future_of_a_loop_is_refused() -> None:
    loop = asyncio.new_event_loop()
    try:
        future = loop.create_future()

        with pytest.raises(ConfigurationError, match="has not run"):
            refuse_unrun(plain, future)
    finally:
        loop.close()


def test_future_that_is_done_is_handed_on() -> None:
    loop = asyncio.new_event_loop()
    try:
        future = loop.create_future()
        future.set_result(1)

        assert refuse_unrun(plain, future) is future
    finally:
        loop.close()


@contextlib.contextmanager
def block() -> Iterator[int]:
    yield 1


@contextlib.asynccontextmanager
async def async_block() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [block, async_block])
def test_context_manager_is_refused_with_the_order_of_the_decorators(function: Any) -> None:
    below = "put @redis_lock below @contextmanager or @asynccontextmanager"

    with pytest.raises(ConfigurationError, match=rf"returned a .* not run yet: .*; {below}"):
        refuse_unrun(plain, function())
    for made in (function, functools.partial(function)):
        with pytest.raises(ConfigurationError, match=f"block returns a context manager: .*{below}"):
            refuse_later(made, [Kind.PLAIN])


def test_context_manager_is_refused_at_decoration() -> None:
    for function in (block, async_block, functools.partial(block)):
        with pytest.raises(ConfigurationError, match="put @redis_lock below @contextmanager"):
            redis_lock("x")(function)


def test_context_manager_of_a_decorated_generator_is_accepted() -> None:
    assert contextlib.contextmanager(redis_lock("x")(generator))
    assert contextlib.asynccontextmanager(redis_lock("x")(async_generator))


@pytest.mark.parametrize(
    "result",
    [
        *(map(str, []), filter(None, []), itertools.starmap(max, [])),
        *(zip([1], generator(), strict=False), enumerate(map(str, [1])), (generator(), 200)),
        *(itertools.chain([1], generator()), itertools.chain.from_iterable(generator())),
        *(itertools.islice(generator(), 3), itertools.accumulate(generator())),
        *(itertools.takewhile(bool, [1]), itertools.dropwhile(bool, [1])),
        *(itertools.filterfalse(bool, [1]), itertools.groupby(generator()), iter(list, [])),
        *(itertools.tee(generator()), itertools.tee(generator())[1], reversed([generator()])),
        *(itertools.pairwise(generator()), itertools.zip_longest([1], generator())),
        *(itertools.islice(enumerate(itertools.chain([1], generator())), 3), iter((generator(),))),
        *(contextlib.closing(generator()), contextlib.aclosing(async_generator())),
        *((1, generator()), [1, generator()], [1, async_generator()], [map(str, [1])]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_lazy_iterator_is_refused(result: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"a {type(result).__name__} that has not run"):
        refuse_unrun(plain, result)


@pytest.mark.parametrize(
    "result",
    [
        *(zip([1], (2,), strict=True), enumerate([1]), reversed([1]), (), (1, 2), [1], [1] * 1000),
        *(itertools.chain([1], (2,)), itertools.islice([1], 3), itertools.accumulate([1])),
        *(itertools.groupby([1]), itertools.tee([1]), itertools.count(), itertools.repeat(1)),
        *(contextlib.closing(io.StringIO()), (1, concurrent.futures.Future()), (1, plain)),
    ],
    ids=lambda result: type(result).__name__,
)
def test_iterator_over_finished_work_is_handed_on(result: Any) -> None:
    assert refuse_unrun(plain, result) is result


def test_function_that_runs_after_its_call_is_refused_before_it() -> None:
    refuse_later(plain, [Kind.PLAIN])
    refuse_later(coroutine, [Kind.PLAIN, Kind.COROUTINE])

    with pytest.raises(ConfigurationError, match=r"coroutine is an async function: .*before its"):
        refuse_later(functools.partial(coroutine), [Kind.PLAIN])


def test_refusal_names_the_function() -> None:
    with pytest.raises(ConfigurationError, match=rf"{__name__}\.plain"):
        refuse_unrun(functools.partial(plain), generator())


def test_iterators_of_endless_depth_are_handed_on() -> None:
    items: Any = iter([1])
    for _ in range(5_000):
        items = itertools.chain(items, [2])

    assert refuse_unrun(plain, items) is items


def test_refused_iterator_is_not_run() -> None:
    def steps() -> Any:
        ran.append(1)
        yield 1

    ran: list[int] = []

    with pytest.raises(ConfigurationError):
        refuse_unrun(plain, itertools.chain(steps()))

    assert ran == []

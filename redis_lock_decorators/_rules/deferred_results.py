"""Results whose work runs later than the call that returns them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from functools import lru_cache, partial
from gc import get_referents
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

#: What to do instead of returning work that has not run.
BELOW = (
    "the lock would be released before its body runs; put @redis_lock on the function that does "
    "the work, or yield from it"
)
BELOW_CONTEXT_MANAGER = (
    "the lock would be released before its block is entered; put @redis_lock below @contextmanager "
    "or @asynccontextmanager"
)
_WAIT = (
    "the lock would be released before its work is done; wait for its result in the function, or "
    "put @redis_lock on the function that does the work"
)
_STREAM = (
    "the lock would be released before its body is sent; put @redis_lock on the generator that "
    "yields the body"
)


@contextmanager
def _block() -> Iterator[None]:
    """An example of a context manager made from a generator."""
    yield


@asynccontextmanager
async def _async_block() -> AsyncIterator[None]:
    """An example of an asynchronous context manager made from a generator."""
    yield


_WORK = (
    *(GeneratorType, AsyncGeneratorType, Coroutine, map, filter, type(iter(int, 1))),
    *(itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.filterfalse),
)
_MANAGERS = (type(_block()), type(_async_block()))
#: The code of the functions that ``@contextmanager`` and ``@asynccontextmanager`` make.
_MAKERS = frozenset({_block.__code__, _async_block.__code__})
_NAMES = (
    *("accumulate", "batched", "chain", "compress", "cycle", "groupby", "islice", "pairwise"),
    *("product", "zip_longest", "_grouper", "_tee", "_tee_dataobject"),
)
#: The iterators that only read others, and what they consist of.
_READERS: tuple[type, ...] = (
    *(zip, enumerate, reversed, type(reversed([])), type(iter(())), type(iter([]))),
    *(getattr(itertools, name) for name in _NAMES if hasattr(itertools, name)),
)
#: The objects that only close another.
_CLOSING = (closing, aclosing)
#: The types of items by which a result is refused, as far as they are known without their bases.
_ITEMS = frozenset({*_WORK[:2], CoroutineType, *_WORK[3:], *_READERS})
#: The most items of a tuple or list that are checked, and the most iterators within each other.
_MOST_ITEMS, _MOST_NESTED = 10, 100
#: Returns what to do about a result, or None if it has run.
_Check = Callable[[Any], str | None]


def makes_context_managers(function: object) -> bool:
    """Whether a function was made by ``@contextmanager`` or ``@asynccontextmanager``."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    return isinstance(function, FunctionType) and function.__code__ in _MAKERS


def cure_of(result: object) -> str | None:
    """Return what to do about a result that has not run; None if it has."""
    kind: Any = type(result)
    check = _check_of(kind)
    return check(result) if check else None


def is_future(kind: type) -> bool:
    """Whether a class is one of futures of any event loop; the test of ``asyncio.isfuture()``."""
    return getattr(kind, "_asyncio_future_blocking", None) is not None


def drop(result: object) -> None:
    """Close a result that has not started, so that Python does not warn; others may be in use."""
    if isinstance(result, CoroutineType):
        is_new = inspect.getcoroutinestate(result) == inspect.CORO_CREATED
    elif isinstance(result, GeneratorType):
        is_new = inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    else:
        return
    if is_new:
        result.close()


@lru_cache(maxsize=256)
def _check_of(kind: type) -> _Check | None:
    """Return the check for the results of a class; None if all have run."""
    if issubclass(kind, _WORK):
        return lambda result: BELOW
    if issubclass(kind, _MANAGERS):
        return lambda result: BELOW_CONTEXT_MANAGER
    if issubclass(kind, _READERS):
        return _cure_of_reader
    if issubclass(kind, _CLOSING):
        return lambda result: cure_of(result.thing)
    if kind is tuple:
        return _cure_of_tuple
    if kind is list:
        return _cure_of_items
    if is_future(kind) or _has_base(kind, "concurrent", "Future"):
        return lambda result: None if result.done() else _WAIT
    return _check_of_response(kind)


def _check_of_response(kind: type) -> _Check | None:
    """Return the check for the responses of a web framework; None for other classes.

    Responses that send a file have run: the work that made the file is done.
    """
    if _has_base(kind, "django", "StreamingHttpResponse"):
        return lambda result: None if getattr(result, "file_to_stream", None) else _STREAM
    if _has_base(kind, "werkzeug", "Response"):
        return lambda result: _STREAM if _is_streamed(result) else None
    if _has_base(kind, "starlette", "Response") and kind.__module__ != "starlette.middleware.base":
        return lambda result: _STREAM if hasattr(result, "body_iterator") else None
    return None


def _is_streamed(response: Any) -> bool:
    return response.is_streamed and not response.direct_passthrough


def _has_base(kind: type, package: str, name: str) -> bool:
    """Whether a class is, or is derived from, a class of this name in a package."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in kind.__mro__
    )


def _cure_of_tuple(result: tuple[Any, ...]) -> str | None:
    """Return what to do about a tuple; it may be a response: its body, status and headers."""
    return (cure_of(result[0]) or _cure_of_items(result)) if result else None


def _cure_of_items(result: Sequence[Any]) -> str | None:
    """Return what to do about a few items of which one has not run."""
    if _ITEMS.isdisjoint(map(type, result[:_MOST_ITEMS])):
        return None
    return _cure_of_reader(result)


def _cure_of_reader(result: Any) -> str | None:
    """Return what to do about an iterator that reads iterators that have not run.

    It is not run: the garbage collector knows to what it refers.
    """
    readers = [result]
    for _ in range(_MOST_NESTED):
        if not readers:
            break
        reader = readers.pop()
        is_data = isinstance(reader, (tuple, list))
        for part in reader[:_MOST_ITEMS] if is_data else get_referents(reader):
            if isinstance(part, _WORK):
                return BELOW
            if isinstance(part, (tuple, list, *_READERS)):
                readers.append(part)
    return None

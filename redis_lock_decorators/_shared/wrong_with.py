"""The errors of ``with`` for tasks, of ``async with`` for threads, and of a lock that is called."""

from __future__ import annotations

from typing import NoReturn


class UnsupportedWithError(TypeError, AttributeError):
    """A lock or lease does not support this kind of ``with`` statement, or a call.

    A TypeError as that of Python itself, and an AttributeError, so that ``hasattr()`` is false.
    """


class WrongWith:
    """The descriptor of a special method, such as ``__enter__``, that raises when it is looked up.

    The matching exit is not defined, so that the abstract classes of ``contextlib`` do not count
    the lock among theirs.
    """

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def __get__(self, lock: object, kind: type) -> NoReturn:
        raise UnsupportedWithError(self._message)


NOT_ASYNC = WrongWith(
    "this RedisLock is for threads and does not support 'async with': use RedisLock of "
    "redis_lock_decorators.asyncio"
)
NOT_CALLED = WrongWith(
    'a RedisLock cannot be called: decorate a function by @redis_lock("name"), or run it under '
    "this lock by lock.call(function, …)"
)
LEASE_NOT_ASYNC = WrongWith(
    "this lease is of a RedisLock for threads and does not support 'async with': use 'with', or "
    "RedisLock of redis_lock_decorators.asyncio"
)
LEASE_ONLY_ASYNC = WrongWith(
    "this lease is of a RedisLock for asyncio and does not support 'with': use 'async with'"
)
ONLY_ASYNC = WrongWith(
    "this RedisLock is for asyncio and does not support 'with': use 'async with', or RedisLock of "
    "redis_lock_decorators in code that is not async"
)

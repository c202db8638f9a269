"""The error of ``with`` on a lock for tasks, and of ``async with`` on a lock for threads."""

from __future__ import annotations

from typing import NoReturn


class UnsupportedWithError(TypeError, AttributeError):
    """A lock does not support this kind of ``with`` statement.

    A TypeError as that of Python itself, and an AttributeError, so that ``hasattr()`` is false.
    """


class WrongWith:
    """The descriptor of an ``__enter__`` or ``__aenter__`` that raises when it is looked up.

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
ONLY_ASYNC = WrongWith(
    "this RedisLock is for asyncio and does not support 'with': use 'async with', or RedisLock of "
    "redis_lock_decorators in code that is not async"
)

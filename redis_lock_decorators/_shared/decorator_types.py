"""What @redis_lock makes of functions, as type checkers see it; nothing here runs.

A call that is skipped gives None, and one that ``on_busy`` answers what that gives. Generators
are known by their annotation, ``Iterator`` or ``Generator``: skipped, they are empty.
"""

# Functions are told apart by what they return, so that the later signatures include the earlier.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, final, overload

if TYPE_CHECKING:
    from typing_extensions import Never

    from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock
    from redis_lock_decorators.redislock import RedisLock

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
Me = TypeVar("Me")
Owner = TypeVar("Owner")
Owner_contra = TypeVar("Owner_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
L_co = TypeVar("L_co", covariant=True)
Items = TypeVar("Items", bound=Iterator[Any])
AsyncItems = TypeVar("AsyncItems", bound=AsyncIterator[Any])
Wrapped = TypeVar("Wrapped", bound="classmethod[Any, Any, Any] | staticmethod[Any, Any]")


@final
class Unknown:
    """Nothing is of this type, so that only results of which no type is known are taken for it.

    pyright takes them for what comes first, such as a coroutine.
    """


class ClassBoundLocked(Protocol[P, R_co]):
    """A decorated class method, or a method of which no types are known."""

    __name__: str
    __qualname__: str

    @property
    def __self__(self) -> Any: ...

    @property
    def __func__(self) -> Callable[..., Any]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @property
    def lock_for(self) -> Callable[..., Any]: ...


class Method(Protocol[Owner_contra, P, R_co]):
    """What can be bound to an object by its first parameter."""

    def __call__(self, owner: Owner_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Locked(Protocol[P, R_co, L_co]):
    """A decorated function: called as before, under the lock that ``lock_for`` gives."""

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, Any]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def lock_for(self, *args: P.args, **kwargs: P.kwargs) -> L_co:
        """The lock that a call with these arguments takes; a method's takes ``self`` first."""
        ...

    # Under @classmethod and @staticmethod too, checkers ask here what a method is bound to: to its
    # first parameter, if that takes the class; to nothing, if neither class nor object fit it.
    @overload
    def __get__(
        self: Method[Owner, Q, S], instance: object, owner: Owner, /
    ) -> ClassBoundLocked[Q, S]: ...
    @overload
    def __get__(self: Me, instance: None, owner: Any, /) -> Me: ...
    @overload
    def __get__(self: Method[Owner, Q, S], instance: Owner, owner: Any, /) -> Callable[Q, S]: ...
    @overload
    def __get__(self: Me, instance: object, owner: Any, /) -> Me: ...


# mypy takes a type variable, which a generic function returns, for whatever is asked of it first.
# Never is asked first, so that its calls take and give anything. pyright passes that over, if it
# is asked with the parameters too.


class Raising(Protocol):
    """The decorator whose busy calls raise."""

    @overload
    def __call__(self, function: Wrapped, /) -> Wrapped: ...
    @overload
    def __call__(self, function: Callable[Q, Never], /) -> Locked[..., Any, RedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, Unknown], /) -> Locked[P, Any, Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Locked[P, Coroutine[Any, Any, R], AsyncRedisLock]: ...
    @overload
    def __call__(
        self, function: Callable[P, AsyncItems], /
    ) -> Locked[P, AsyncItems, AsyncRedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Locked[P, R, RedisLock]: ...


class Skipping(Protocol):
    """The decorator whose busy calls give None."""

    @overload
    def __call__(self, function: Wrapped, /) -> Wrapped: ...
    @overload
    def __call__(self, function: Callable[Q, Never], /) -> Locked[..., Any, RedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, Unknown], /) -> Locked[P, Any, Any]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Locked[P, Coroutine[Any, Any, R | None], AsyncRedisLock]: ...
    @overload
    def __call__(
        self, function: Callable[P, AsyncItems], /
    ) -> Locked[P, AsyncItems, AsyncRedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, Items], /) -> Locked[P, Items, RedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Locked[P, R | None, RedisLock]: ...


class Answering(Generic[Answer_co]):
    """The decorator whose busy calls give an answer, which async functions await."""

    @overload
    def __call__(self, function: Wrapped, /) -> Wrapped: ...
    @overload
    def __call__(self, function: Callable[Q, Never], /) -> Locked[..., Any, RedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, Unknown], /) -> Locked[P, Any, Any]: ...
    @overload
    def __call__(
        self: Answering[Coroutine[Any, Any, S]], function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Locked[P, Coroutine[Any, Any, R | S], AsyncRedisLock]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Locked[P, Coroutine[Any, Any, R | Answer_co], AsyncRedisLock]: ...
    @overload
    def __call__(
        self, function: Callable[P, AsyncIterator[R]], /
    ) -> Locked[P, AsyncIterator[R | Any], AsyncRedisLock]: ...
    @overload
    def __call__(
        self, function: Callable[P, Iterator[R]], /
    ) -> Locked[P, Iterator[R | Any], RedisLock]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Locked[P, R | Answer_co, RedisLock]: ...
    def __call__(self, function: Any, /) -> Any:
        raise NotImplementedError

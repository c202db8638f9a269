"""The types of decorated functions, for type checkers only.

A skipped call returns None, and one that ``on_busy`` handles the result of that. Generators are
recognized by their annotation, ``Iterator`` or ``Generator``: skipped, they are empty.
"""

# Overloads distinguish functions by their return type, so later signatures include earlier ones.
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
    """A type without values: it matches only results of unknown type.

    Without it pyright would match such results with the first overload, such as a coroutine.
    """


class ClassBoundLocked(Protocol[P, R_co]):
    """A decorated class method, or a method of unknown type."""

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
    """A callable that can be bound to an object by its first parameter."""

    def __call__(self, owner: Owner_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Locked(Protocol[P, R_co, L_co]):
    """A decorated function: called as before, under the lock that ``lock_for`` returns."""

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, Any]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def lock_for(self, *args: P.args, **kwargs: P.kwargs) -> L_co:
        """Return the lock of a call with these arguments; for a method, pass ``self`` first."""
        ...

    # Type checkers also use this for @classmethod and @staticmethod: a method is bound if its first
    # parameter accepts the class or the object, else it is not.
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


# mypy solves the type variable that a generic function returns by the first overload. With Never
# in the first overload, calls of such a function accept and return Any. pyright skips it, as its
# parameters are a separate ParamSpec.


class Raising(Protocol):
    """The decorator with ``on_busy="raise"``."""

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
    """The decorator with ``on_busy="skip"``: busy calls return None."""

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
    """The decorator with a function as ``on_busy``, whose result async functions await."""

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

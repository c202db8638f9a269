"""The errors of ``@redis_lock`` at decoration; no server is needed."""

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redis_lock_decorators import ConfigurationError, LockNameError, redis_lock
from redis_lock_decorators._dispatch import decorated
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.settings import Settings


def plain(n: int) -> None: ...


def steps(n: int) -> Iterator[int]:
    yield n


async def later(n: int) -> None: ...


async def later_steps(n: int) -> AsyncIterator[int]:
    yield n


@pytest.mark.parametrize(
    ("function", "on_busy"),
    [
        *((plain, other) for other in (steps, later, later_steps)),
        *((steps, other) for other in (later, later_steps)),
        *((later, other) for other in (steps, later_steps)),
        (plain, functools.partial(later, 1)),
    ],
)
def test_on_busy_that_would_never_run_is_refused_at_decoration(function: Any, on_busy: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"would not run it: give a"):
        redis_lock("x", on_busy=on_busy)(function)


@pytest.mark.parametrize("function", [steps, later, later_steps])
def test_plain_on_busy_fits_every_function(function: Any) -> None:
    assert redis_lock("x", on_busy=plain)(function)
    assert redis_lock("x", on_busy=function)(function)


# Errors name the function


class Unnamed:
    """An object whose text has its address."""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"lock_name": "order:{order_id}"}, LockNameError),
        ({"lock_name": "order:{"}, LockNameError),
        ({"on_busy": "sikp"}, ConfigurationError),
        ({"get_lock_name": str, "lock_name": "a"}, ConfigurationError),
        ({"client": "redis://"}, ConfigurationError),
    ],
)
def test_error_at_decoration_names_the_function(options: Any, problem: type[Exception]) -> None:
    def charge(order: Any) -> None: ...

    plan = LockConfig(Settings(), options.get("client"), None, {})
    with pytest.raises(problem, match=r"@redis_lock on .*test_error_at_decoration.*charge: "):
        decorated(
            charge,
            plan,
            options.get("lock_name"),
            options.get("get_lock_name"),
            options.get("on_busy", "raise"),
        )


def test_bare_decorator_without_a_usable_name_explains_the_cure() -> None:
    @redis_lock
    def charge(order: Any) -> None: ...

    with pytest.raises(LockNameError) as caught:
        charge(Unnamed())

    assert "charge: a lock's name would hold <" in str(caught.value)
    assert '@redis_lock("{function}")' in str(caught.value)


def test_template_that_gives_no_name_names_the_function() -> None:
    @redis_lock("order:{order}")
    def charge(order: Any) -> None: ...

    with pytest.raises(LockNameError, match=r"^@redis_lock on .*charge: a lock's name would hold"):
        charge(Unnamed())


def test_error_of_a_user_class_is_unchanged() -> None:
    class NoOrder(LockNameError):
        def __init__(self, order: object, reason: str) -> None:
            super().__init__(f"{order}: {reason}")

    def name(order: object) -> str:
        raise NoOrder(order, "unknown")

    @redis_lock(get_lock_name=name)
    def charge(order: Any) -> None: ...

    with pytest.raises(NoOrder, match="charge: 7: unknown"):
        charge(7)


@pytest.mark.parametrize("thing", [7, 1.5, {"a": 1}])
def test_error_for_an_invalid_name_says_what_a_name_is(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="a name is text or a list of texts"):
        redis_lock(thing)


@pytest.mark.parametrize("thing", [property(lambda self: 1), type("Order", (), {})])
def test_error_for_a_property_says_to_decorate_its_function(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="put it on the method that does the work"):
        redis_lock(thing)


def test_missing_argument_of_lock_for_names_the_function() -> None:
    work = redis_lock("{n}")(plain)

    with pytest.raises(TypeError, match=rf"^{__name__}\.plain: missing a required argument: 'n'$"):
        work.lock_for()


def test_lock_for_of_a_wrapper_needs_only_the_arguments_of_the_name() -> None:
    def other(n: int, *, session: str) -> None: ...

    @functools.wraps(other)
    def adding(*args: Any, **kwargs: Any) -> None:
        other(*args, session="s", **kwargs)

    work = redis_lock("{n}")(adding)

    assert work.lock_for(7)._names == ("7",)
    with pytest.raises(TypeError, match="put @redis_lock below it"):
        work.lock_for(7, 8)

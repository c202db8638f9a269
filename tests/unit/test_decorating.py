"""What @redis_lock refuses while it decorates; no server is asked."""

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
def test_an_answer_that_would_never_run_is_refused_at_decoration(
    function: Any, on_busy: Any
) -> None:
    with pytest.raises(ConfigurationError, match=r"would not run it: give a"):
        redis_lock("x", on_busy=on_busy)(function)


@pytest.mark.parametrize("function", [steps, later, later_steps])
def test_a_plain_answer_fits_every_function(function: Any) -> None:
    assert redis_lock("x", on_busy=plain)(function)
    assert redis_lock("x", on_busy=function)(function)


# Errors name the function


class Unnamed:
    """Its text is told by its address."""


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


def test_bare_decorator_that_can_make_no_name_tells_whose_and_offers_one() -> None:
    @redis_lock
    def charge(order: Any) -> None: ...

    with pytest.raises(LockNameError) as caught:
        charge(Unnamed())

    assert "charge: a lock's name would hold <" in str(caught.value)
    assert '@redis_lock("{function}")' in str(caught.value)


def test_template_that_can_make_no_name_tells_whose() -> None:
    @redis_lock("order:{order}")
    def charge(order: Any) -> None: ...

    with pytest.raises(LockNameError, match=r"^@redis_lock on .*charge: a lock's name would hold"):
        charge(Unnamed())


def test_error_of_a_users_own_kind_stays_that() -> None:
    class NoOrder(LockNameError):
        def __init__(self, order: object, reason: str) -> None:
            super().__init__(f"{order}: {reason}")

    def name(order: object) -> str:
        raise NoOrder(order, "unknown")

    @redis_lock(get_lock_name=name)
    def charge(order: Any) -> None: ...

    with pytest.raises(NoOrder, match="charge: 7: unknown"):
        charge(7)

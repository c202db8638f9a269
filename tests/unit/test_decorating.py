"""What @redis_lock refuses while it decorates; no server is asked."""

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redis_lock_decorators import ConfigurationError, redis_lock


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

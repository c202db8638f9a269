"""Durations: the right number or a clear error."""

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.durations import (
    LONGEST_EXPIRE,
    checked_acquire_time,
    checked_delta,
    checked_expire,
    milliseconds,
)
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import ConfigurationError

NO_NUMBERS = [True, False, "10", b"10", Decimal(10), Fraction(1, 2), 1j, [10], ...]
WRONG_EXPIRES = [0, 0.0, -0.0, -1, -0.5, math.nan, math.inf, -math.inf, 10**12, 10**400, 1e300]
ALLOWED = st.floats(min_value=0, exclude_min=True, max_value=LONGEST_EXPIRE)


def test_expire_shorter_than_redis_can_count_is_the_shortest() -> None:
    assert checked_expire(0.0005) == 0.001


@pytest.mark.parametrize("expire", [0.001, 0.5, 1, 10, 3.25, 86_400, LONGEST_EXPIRE])
def test_expire_in_seconds_is_unchanged(expire: float) -> None:
    assert checked_expire(expire) == expire


@pytest.mark.parametrize("expire", [*WRONG_EXPIRES, *NO_NUMBERS, None], ids=repr)
def test_invalid_expire_is_refused(expire: Any) -> None:
    with pytest.raises(ConfigurationError, match="expire"):
        checked_expire(expire)


@pytest.mark.parametrize("check", [checked_expire, checked_delta, checked_acquire_time])
def test_timedelta_is_refused_by_the_name_of_its_method(check: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is an object of type timedelta: .* \.total_sec"):
        check(timedelta(seconds=3))


def test_type_of_an_object_is_named_once() -> None:
    with pytest.raises(ConfigurationError, match=r"^expire is an object of type Decimal: give a"):
        checked_expire(Decimal(10))
    with pytest.raises(ConfigurationError, match=r"^expire='10' is of type str: give a number"):
        checked_expire("10")


def test_expire_that_seems_to_be_milliseconds_is_explained() -> None:
    with pytest.raises(ConfigurationError, match="milliseconds, by mistake"):
        checked_expire(10**12)


@given(expire=ALLOWED)
def test_any_allowed_expire_gives_a_lease_that_redis_accepts(expire: float) -> None:
    px = milliseconds(checked_expire(expire))

    assert type(px) is int
    assert 1 <= px <= LONGEST_EXPIRE * 1000


@pytest.mark.parametrize(("given_time", "wait"), [(0, 0), (0.5, 0.5), (10, 10), (None, math.inf)])
def test_acquire_time_of_zero_or_infinity_is_allowed(given_time: float | None, wait: float) -> None:
    assert checked_acquire_time(given_time) == wait


@pytest.mark.parametrize("acquire_time", [-1, -0.001, math.nan, -math.inf, *NO_NUMBERS], ids=repr)
def test_invalid_acquire_time_is_refused(acquire_time: Any) -> None:
    with pytest.raises(ConfigurationError, match="acquire_time"):
        checked_acquire_time(acquire_time)


@pytest.mark.parametrize("acquire_time", [10**12, 1e300, math.inf])
def test_very_long_acquire_time_can_be_added_to_a_clock(acquire_time: float) -> None:
    wait = checked_acquire_time(acquire_time)

    assert 1000.0 + wait > 10**11


def test_acquire_time_beyond_any_float_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="acquire_time"):
        checked_acquire_time(10**400)


def test_false_as_acquire_time_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigurationError, match="0 for one try"):
        checked_acquire_time(False)


@pytest.mark.parametrize("delta", [0.001, 0.005, 1, 3600])
def test_delta_in_seconds_is_unchanged(delta: float) -> None:
    assert checked_delta(delta) == delta


@pytest.mark.parametrize(
    "delta", [0, -1, math.nan, math.inf, 3601, 10**12, *NO_NUMBERS, None], ids=repr
)
def test_invalid_delta_is_refused(delta: Any) -> None:
    with pytest.raises(ConfigurationError, match="delta"):
        checked_delta(delta)


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [
        *((0.0005, 1), (0.001, 1), (0.0011, 2), (0.0015, 2), (0.003, 3), (0.007, 7), (0.029, 29)),
        *((1, 1000), (1.001, 1001), (1.0011, 1002), (10, 10_000), (0.1 + 0.2, 300)),
        *((1e-12, 1), (LONGEST_EXPIRE, 31_622_400_000)),
    ],
)
def test_milliseconds_are_whole_and_rounded_up(seconds: float, whole: int) -> None:
    assert milliseconds(seconds) == whole


@given(whole=st.integers(min_value=1, max_value=10**9))
def test_whole_milliseconds_are_unchanged(whole: int) -> None:
    assert milliseconds(whole / 1000) == whole


@given(seconds=ALLOWED)
def test_milliseconds_are_never_less_than_the_seconds(seconds: float) -> None:
    assert milliseconds(seconds) >= seconds * 1000 * (1 - 1e-12) - 1e-6


# Options


def test_options_have_the_given_and_the_derived_values() -> None:
    options = Options(acquire_time=None, expire=0.0105, delta=1, prefix="p:")

    assert (options.max_wait, options.expire_ms, options.prefix) == (math.inf, 11, "p:")


@pytest.mark.parametrize(
    "wrong",
    [
        {"acquire_time": -1},
        {"expire": 0},
        {"expire": 0.009},
        {"expire": None},
        {"delta": 0},
        {"prefix": None},
        {"prefix": 5},
        {"prefix": b"\xff"},
        {"prefix": "\ud800"},
        {"release_method": "delete"},
        {"release_method": None},
        {"release_method": ["script"]},
    ],
    ids=repr,
)
def test_invalid_option_is_refused_when_it_is_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Options(**wrong)


def test_prefix_may_be_empty_or_bytes() -> None:
    assert Options(prefix="").prefix == ""
    assert Options(prefix=b"p:").prefix == "p:"  # type: ignore[arg-type]

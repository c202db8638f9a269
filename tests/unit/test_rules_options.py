"""The options of a lock: their checks and the values derived from them."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.durations import LONGEST_EXPIRE, milliseconds
from redis_lock_decorators._rules.options import MOST_REPLICAS, Options
from redis_lock_decorators.errors import ConfigurationError

WRONG_HOLDS = [
    *(0, -0.0, -1, math.nan, math.inf, -math.inf, 10**12, 10**400),
    *(True, False, "10", b"10", Decimal(10), [10], ...),
]
SWITCHES = ["auto_renew", "cancel_on_lost", "fencing"]


def test_lock_is_renewed_without_fencing_by_default() -> None:
    options = Options()

    assert (options.auto_renew, options.cancel_on_lost) == (True, True)
    assert (options.fencing, options.replicas) == (False, 0)
    assert options.max_hold is options.min_hold is options.on_lost is None


# Switches


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("value", [True, False])
def test_switch_is_true_or_false(switch: str, value: bool) -> None:
    assert getattr(Options(**{switch: value}), switch) is value


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("value", [1, 0, None, "yes", "", 1.0, math.nan, [], ...], ids=repr)
def test_truthy_or_falsy_switch_is_refused(switch: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{switch}=.*True or False"):
        Options(**{switch: value})


# Durations


@pytest.mark.parametrize("option", ["max_hold", "min_hold"])
@pytest.mark.parametrize("hold", [None, 0.001, 0.5, 1, 10, 86_400, LONGEST_EXPIRE])
def test_hold_is_a_number_of_seconds_or_none(option: str, hold: float | None) -> None:
    assert getattr(Options(**{option: hold}), option) == hold


@pytest.mark.parametrize("option", ["max_hold", "min_hold"])
@pytest.mark.parametrize("hold", WRONG_HOLDS, ids=repr)
def test_invalid_hold_is_refused(option: str, hold: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        Options(**{option: hold})


@pytest.mark.parametrize("option", ["max_hold", "min_hold"])
def test_hold_shorter_than_redis_can_count_gives_a_lease_that_it_can(option: str) -> None:
    options = Options(**{option: 0.0001})

    assert options.lease_seconds >= 0.001
    assert options.expire_ms >= 1
    assert options.first_check > 0


@pytest.mark.parametrize(
    ("expire", "max_hold", "lease"), [(10, None, 10), (10, 60, 10), (10, 10, 10), (10, 4, 4)]
)
def test_lease_is_the_expire_but_not_longer_than_max_hold(
    expire: float, max_hold: float | None, lease: float
) -> None:
    options = Options(expire=expire, max_hold=max_hold)

    assert (options.expire, options.lease_seconds) == (expire, lease)
    assert options.expire_ms == lease * 1000


@given(
    expire=st.floats(min_value=0.01, max_value=LONGEST_EXPIRE),
    max_hold=st.none() | st.floats(min_value=0.001, max_value=LONGEST_EXPIRE),
)
def test_any_lease_is_checked_in_its_first_third(expire: float, max_hold: float | None) -> None:
    options = Options(expire=expire, max_hold=max_hold)

    lease = options.lease_seconds
    assert lease == min(expire, max_hold or math.inf)
    assert options.expire_ms == milliseconds(lease)
    assert min(lease / 4, 50) < options.first_check < min(lease / 3, 60)
    assert 0 < options.grain <= lease / 24 * (1 + 1e-9)


def test_min_hold_is_refused_with_the_native_release() -> None:
    with pytest.raises(ConfigurationError, match=r"min_hold.*native"):
        Options(min_hold=1, release_method="native")


@pytest.mark.parametrize("method", ["script", "transaction"])
def test_min_hold_is_allowed_with_other_release_methods(method: Any) -> None:
    assert Options(min_hold=1, release_method=method).min_hold == 1


def test_native_release_needs_no_min_hold() -> None:
    assert Options(release_method="native").min_hold is None


# Losses


@pytest.mark.parametrize("on_lost", [None, print, lambda lease, why: None, list.append])
def test_on_lost_is_a_function_or_none(on_lost: Any) -> None:
    assert Options(on_lost=on_lost).on_lost is on_lost


@pytest.mark.parametrize("on_lost", [True, False, 0, 1, "", "print", math.nan, [], ...], ids=repr)
def test_on_lost_that_cannot_be_called_is_refused(on_lost: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"on_lost=.*function"):
        Options(on_lost=on_lost)


# Replicas


@pytest.mark.parametrize("replicas", [0, 1, 2, MOST_REPLICAS])
def test_replicas_are_a_number(replicas: int) -> None:
    assert Options(replicas=replicas).replicas == replicas


@pytest.mark.parametrize(
    "replicas",
    [*(-1, MOST_REPLICAS + 1, True, False, 1.0, math.nan, math.inf), *(None, "1", b"1", [1])],
    ids=repr,
)
def test_replicas_that_are_no_number_of_servers_are_refused(replicas: Any) -> None:
    with pytest.raises(ConfigurationError, match="replicas="):
        Options(replicas=replicas)


def test_long_wrong_value_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Options(on_lost="x" * 10_000)  # type: ignore[arg-type]

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("option", ["release_method", "wait"])
def test_unknown_choice_is_shown_shortened_with_its_option(option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Options(**{option: "x" * 200})

    assert str(caught.value).startswith(f"{option}='xxx")
    assert "give one of '" in str(caught.value)
    assert len(str(caught.value)) < 160

"""Lease times: a lease ends for its holder before it expires, and is renewed in time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.durations import LONGEST_EXPIRE, checked_expire, milliseconds
from redis_lock_decorators._rules.lease_times import (
    deadline,
    drift_margin,
    grain,
    is_last,
    renewal_due,
)

#: Monotonic clocks count from the start of the machine: up to thirty years.
SENT = st.floats(min_value=0, max_value=1e9)
EXPIRES = st.floats(min_value=0.0005, max_value=LONGEST_EXPIRE)
LEASES = st.floats(min_value=0.001, max_value=LONGEST_EXPIRE)


@pytest.mark.parametrize(
    ("expire", "margin"),
    [(10, 0.102), (1, 0.012), (0.1, 0.003), (0.004, 0.002), (0.001, 0.0005), (0.0005, 0.00025)],
)
def test_margin_is_a_hundredth_and_two_milliseconds_at_most_half(
    expire: float, margin: float
) -> None:
    assert drift_margin(expire) == pytest.approx(margin)


@given(sent=SENT, expire=EXPIRES)
def test_holder_ends_before_the_server_does_even_if_clocks_differ(
    sent: float, expire: float
) -> None:
    server_ends = sent + milliseconds(expire) / 1000 * 0.99

    assert deadline(sent, expire) <= server_ends + 1e-6


@given(sent=SENT, expire=st.floats(min_value=0, exclude_min=True, max_value=LONGEST_EXPIRE))
def test_holder_has_some_time_of_any_lease_that_is_allowed(sent: float, expire: float) -> None:
    lease = milliseconds(checked_expire(expire)) / 1000

    assert sent < deadline(sent, lease) < sent + lease


@given(sent=SENT, expire=EXPIRES)
def test_deadline_never_exceeds_the_lease(sent: float, expire: float) -> None:
    assert deadline(sent, expire) <= sent + expire


# Renewals


@pytest.mark.parametrize(("expire", "due"), [(30, 10), (10, 10 / 3), (0.3, 0.1)])
def test_renewal_is_due_a_third_of_the_lease_after_the_request(expire: float, due: float) -> None:
    assert renewal_due(deadline(1000, expire), expire) == pytest.approx(1000 + due)


@given(sent=SENT, expire=LEASES)
def test_renewal_is_due_with_half_of_the_lease_left(sent: float, expire: float) -> None:
    end = deadline(sent, expire)

    due = renewal_due(end, expire)

    assert sent < due < end
    assert sent + expire - due >= expire / 2


@given(sent=SENT, expire=st.floats(min_value=0.02, max_value=LONGEST_EXPIRE))
def test_holder_too_has_half_of_the_lease_left_when_renewal_is_due(
    sent: float, expire: float
) -> None:
    end = deadline(sent, expire)

    assert end - renewal_due(end, expire) >= expire / 2


@given(extended=EXPIRES, expire=LEASES)
def test_extended_lease_is_renewed_later_but_in_time(extended: float, expire: float) -> None:
    end = deadline(1000, expire + extended)

    due = renewal_due(end, expire)

    assert due > renewal_due(deadline(1000, expire), expire)
    assert due < end


@given(expire=LEASES)
def test_grain_is_a_power_of_two_and_a_small_part_of_the_lease(expire: float) -> None:
    width = grain(expire)

    assert math.frexp(width)[0] == 0.5
    assert expire / 48 < width <= expire / 24 * (1 + 1e-9)


@given(expire=LEASES)
def test_earliest_renewal_is_after_the_acquisition(expire: float) -> None:
    assert renewal_due(deadline(1000, expire), expire) - grain(expire) > 1000


# The last renewal


@given(
    expire=LEASES,
    shares=st.lists(st.floats(min_value=0.29, max_value=0.98), min_size=1, max_size=50),
    max_hold=st.floats(min_value=0.001, max_value=1000),
)
def test_no_renewal_exceeds_max_hold_and_the_last_one_is_known(
    expire: float, shares: list[float], max_hold: float
) -> None:
    last = 1000 + max_hold
    lease = min(expire, max_hold)
    sent, end = 1000.0, deadline(1000.0, lease)

    for share in shares:
        if is_last(end, lease, last):
            break
        sent += share * (end - sent)
        assert deadline(sent, min(lease, last - sent)) > end - (end - sent) / 2
        end = deadline(sent, min(lease, last - sent))
        assert end <= last


@given(expire=LEASES, left=st.floats(min_value=0.001, max_value=1))
def test_lease_renewed_until_its_end_is_not_renewed_again(expire: float, left: float) -> None:
    seconds = expire * left

    assert is_last(deadline(1000, seconds), expire, 1000 + seconds)


@given(expire=LEASES, more=st.floats(min_value=0.01, max_value=1e6))
def test_lease_that_could_last_longer_is_renewed(expire: float, more: float) -> None:
    assert not is_last(deadline(1000, expire), expire, 1000 + expire + more)


def test_lease_without_max_hold_has_no_last_renewal() -> None:
    assert not is_last(1e9, 10, math.inf)

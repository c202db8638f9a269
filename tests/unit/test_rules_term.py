"""Lease arithmetic: the holder always ends before the server does, and always has some time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators.rules.durations import LONGEST_EXPIRE, checked_expire, milliseconds
from redis_lock_decorators.rules.term import deadline, drift_margin

#: Monotonic clocks count from the start of the machine: up to thirty years.
SENT = st.floats(min_value=0, max_value=1e9)
EXPIRES = st.floats(min_value=0.0005, max_value=LONGEST_EXPIRE)


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

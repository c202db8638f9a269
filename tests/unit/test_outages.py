"""Reports about leases that are not renewed: the cause once per client, and its end."""

import logging
from typing import Any

import pytest
from support.faults import delivered, request_lost, swallowed
from support.renewers import new_lease_loop, refuse_renewals
from support.simulated_loop import HeldLease

from redis_lock_decorators.errors import LockLostError


def lost_reason(lease: HeldLease) -> str:
    ((_, reason),) = lease.notifications
    return reason


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


# The reason of a loss


def test_loss_in_an_outage_names_its_duration_and_the_last_error() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = request_lost

    port.clock.advance(20)

    assert "no answer for 6." in lost_reason(lease)
    assert "(last error: ConnectionError: the request was lost)" in lost_reason(lease)
    assert "server and the network" in str(LockLostError("a", why=lost_reason(lease)))


def test_loss_while_a_renewal_hangs_names_the_missing_reply() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = swallowed

    port.clock.advance(20)

    assert "no answer for 6." in lost_reason(lease)


def test_loss_in_a_suspended_process_says_that_nothing_was_sent() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(1)
    lease_loop.freeze(20)

    port.clock.advance(21)

    assert lost_reason(lease) == "its time ran out before a renewal was sent"
    assert "event loop" in str(LockLostError("a", why=lost_reason(lease)))


@pytest.mark.parametrize("options", [{"auto_renew": False}, {"max_hold": 12.0}, {"max_hold": 1.0}])
def test_loss_of_a_lease_without_renewal_does_not_mention_renewal(
    options: dict[str, Any],
) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10, **options)
    port.clock.advance(9)
    lease_loop.freeze(20)

    port.clock.advance(21)

    assert "renewal" not in lost_reason(lease)


def test_loss_after_a_successful_renewal_names_no_earlier_failure() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = request_lost
    port.clock.advance(5)
    port.usual = delivered
    port.clock.advance(3)
    lease_loop.freeze(20)

    port.clock.advance(21)

    assert lost_reason(lease) == "its time ran out before a renewal was sent"


# Log messages


def test_outage_and_its_end_are_logged_once_per_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    _, port = new_lease_loop()
    leases = [HeldLease(port, f"lock {number}", expire=10) for number in range(50)]
    port.usual = request_lost
    port.clock.advance(5)
    port.usual = delivered

    port.clock.advance(10)

    assert all(lease.is_live() for lease in leases)
    assert levels(caplog) == ["WARNING", "INFO"]
    assert "could not be renewed" in caplog.messages[0]
    assert "the renewal of 50 failed" in caplog.messages[1]


def test_each_outage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    for _ in range(3):
        port.usual = request_lost
        port.clock.advance(5)
        port.usual = delivered
        port.clock.advance(10)

    assert lease.is_live()
    assert levels(caplog) == ["WARNING"] * 3


def test_outage_ends_with_its_last_lease(caplog: pytest.LogCaptureFixture) -> None:
    _, port = new_lease_loop()
    for name in ("a", "b"):
        port.usual = delivered
        lease = HeldLease(port, name, expire=10)
        port.usual = request_lost
        port.clock.advance(20)
        assert lease.watch.outage is None

    assert levels(caplog) == ["WARNING"] * 2


def test_refused_renewals_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    _, port = new_lease_loop()
    refuse_renewals(port)
    leases = [HeldLease(port, name, expire=10) for name in "abc"]

    port.clock.advance(20)

    assert [len(lease.notifications) for lease in leases] == [1, 1, 1]
    assert levels(caplog) == ["WARNING"]
    assert "refuses to renew lock" in caplog.text


def test_connection_closed_while_idle_is_no_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.faults = [request_lost]

    port.clock.advance(60)

    assert lease.is_live()
    assert caplog.records == []

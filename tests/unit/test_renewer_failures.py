"""An error of one lease, or work that is cut short, does not affect the other leases."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.faults import delivered, paused, raising, request_lost
from support.renewers import HOUR, new_lease_loop, refuse_renewals, renewals
from support.simulated_loop import HeldLease, SimulatedLoop
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow.renewal.renewer import MOST_NOTIFY_ATTEMPTS, Renewer
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators.errors import LockLostError

ERRORS = [RuntimeError("can't start new thread"), asyncio.CancelledError(), BaseException("odd")]
log = logging.getLogger("redis_lock_decorators")


class Failing(HeldLease):
    """A lease whose loss cannot be reported at first."""

    error: BaseException = RuntimeError()
    failures = 1

    def notify(self) -> None:
        super().notify()
        self.failures -= 1
        if self.failures >= 0:
            raise self.error


def failing(port: SimulatedPort, name: str, error: BaseException, **options: Any) -> Failing:
    lease = Failing(port, name, **options)
    lease.error = error
    return lease


@pytest.fixture
def failing_log() -> Iterator[None]:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("this filter fails")

    log.addFilter(refuse)
    yield
    log.removeFilter(refuse)


def until_work(lease_loop: SimulatedLoop) -> None:
    """Advance the clock until work is started."""
    for _ in range(20_000):
        if lease_loop.works:
            return
        lease_loop.clock.advance(0.001)
    raise AssertionError("nothing is begun any more")


# Refused renewals


def test_loss_has_the_refusal_of_the_renewal_as_its_reason() -> None:
    _, port = new_lease_loop()
    refuse_renewals(port)
    lease = HeldLease(port, "a", expire=10)

    port.clock.advance(20)

    ((_, why),) = lease.notifications
    assert "renewal was refused (NoPermissionError: no permissions to run the 'pexpire'" in why
    assert "grant the missing permission or free memory" in str(LockLostError("a", why=why))


@pytest.mark.parametrize("number", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("expire", [0.5, 1, 1.5, 2, 3, 10])
def test_outage_of_less_than_two_thirds_of_the_lease_loses_nothing(
    expire: float, number: float
) -> None:
    lease_loop, port = new_lease_loop()
    lease_loop.random = lambda: number
    lease = HeldLease(port, "a", expire=expire)
    port.usual = raising(ConnectionError("refused"))

    port.clock.advance(0.66 * expire)
    port.usual = delivered
    port.clock.advance(2 * expire)

    assert lease.notifications == []


def test_refusal_that_ended_is_not_the_reason_of_a_loss() -> None:
    _, port = new_lease_loop()
    refuse_renewals(port)
    lease = HeldLease(port, "a", expire=10)
    port.clock.advance(8)
    port.usual = delivered
    port.clock.advance(20)
    port.usual = request_lost

    port.clock.advance(20)

    ((_, why),) = lease.notifications
    assert "refused" not in why
    assert "no answer" in why


# Errors of one lease


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_others_are_renewed_though_a_report_fails_in_their_batch(
    error: BaseException, place: int
) -> None:
    _, port = new_lease_loop()
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    leases[place] = failing(port, f"failing {place}", error, expire=10)
    port.server.drop(leases[place].key)

    port.clock.advance(HOUR)
    later = HeldLease(port, "later", expire=10)
    port.clock.advance(HOUR)

    lost = leases.pop(place)
    assert len(lost.notifications) == 2
    assert all(lease.is_live() for lease in [*leases, later])


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_others_are_renewed_though_a_report_fails_at_its_deadline(
    error: BaseException,
) -> None:
    lease_loop, port = new_lease_loop()
    ends = [failing(port, name, error, expire=10, auto_renew=False) for name in "abc"]
    lease = HeldLease(port, "d", expire=10)

    port.clock.advance(HOUR)
    later = HeldLease(port, "later", expire=1)
    port.clock.advance(60)

    assert [len(end.notifications) for end in ends] == [2, 2, 2]
    assert lease.is_live()
    assert later.is_live()
    assert len(lease_loop.renewer) == 2


def test_loss_that_can_never_be_reported_is_given_up() -> None:
    lease_loop, port = new_lease_loop()
    end = failing(port, "a", RuntimeError("no thread"), expire=10, auto_renew=False)
    end.failures = 1000

    port.clock.advance(HOUR)

    assert len(end.notifications) == MOST_NOTIFY_ATTEMPTS
    assert len(lease_loop.renewer) == 0


@pytest.mark.usefixtures("failing_log")
def test_others_are_renewed_though_logging_fails() -> None:
    _, port = new_lease_loop()
    lost = failing(port, "lost", RuntimeError(), expire=10)
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    port.server.drop(lost.key)
    port.clock.advance(5)

    port.faults = [request_lost] * 3
    port.clock.advance(HOUR)

    assert len(lost.notifications) == 2
    assert all(lease.is_live() for lease in leases)


def test_lease_whose_check_fails_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = new_lease_loop()
    lease, other = HeldLease(port, "a", expire=10), HeldLease(port, "b", expire=10)
    next_check, asked = TrackedLease.next_check, 0

    def fail_twice(watch: TrackedLease) -> tuple[float, float]:
        nonlocal asked
        asked += watch is lease.watch
        if watch is lease.watch and asked in (3, 4):
            raise RuntimeError("no answer")
        return next_check(watch)

    monkeypatch.setattr(TrackedLease, "next_check", fail_twice)

    port.clock.advance(60)

    assert asked > 4
    assert lease.is_live()
    assert other.is_live()


def test_error_of_a_lease_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    _, port = new_lease_loop()
    lost = failing(port, "the name", RuntimeError("can't start new thread"), expire=10)
    port.server.drop(lost.key)

    with caplog.at_level(logging.ERROR):
        port.clock.advance(60)

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the name" in record.getMessage()
    assert "can't start new thread" in caplog.text


# Interrupted ticks


def interrupting(error: BaseException, at: int) -> Callable[..., Any]:
    """A check that is interrupted once, at the lease with the given number."""
    checks, plain = 0, Renewer._check

    def check(self: Renewer, *arguments: Any) -> None:
        nonlocal checks
        checks += 1
        if checks == at:
            raise error
        plain(self, *arguments)

    return check


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_next_tick_continues_where_one_was_interrupted(
    error: BaseException, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = new_lease_loop()
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    monkeypatch.setattr(Renewer, "_check", interrupting(error, at))

    with pytest.raises(type(error)):
        port.clock.advance(5)
    port.clock.advance(HOUR)

    assert all(lease.is_live() for lease in leases)
    assert all(lease.notifications == [] for lease in leases)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
def test_only_an_interruption_ends_a_tick(
    error: BaseException,
) -> None:
    _, port = new_lease_loop()
    end = failing(port, "a", error, expire=3, auto_renew=False)
    leases = [HeldLease(port, name, expire=3) for name in "bcd"]

    with pytest.raises(type(error)):
        port.clock.advance(5)
    port.clock.advance(HOUR)

    assert len(end.notifications) == 2
    assert all(lease.is_live() for lease in leases)


# Renewals that are cut short


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("times", [1, 5])
def test_cancelled_renewal_is_started_again(steps: int, times: int) -> None:
    lease_loop, port = new_lease_loop()
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    lease_loop.lag = 0.01
    port.latency = 0.5

    for _ in range(times):
        until_work(lease_loop)
        for _ in range(steps):
            port.clock.advance(0.02)
        lease_loop.works[0].cancel()
    port.latency = 0.001
    port.clock.advance(HOUR)

    assert all(lease.is_live() for lease in leases)
    assert all(lease.notifications == [] for lease in leases)


def test_work_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lease_loop, port = new_lease_loop()
    leases = [HeldLease(port, name, expire=10) for name in "abc"]
    start, failures = lease_loop.start, [RuntimeError("no"), RuntimeError("no")]

    def fail_at_first(work: Any, ended: Any = None) -> Any:
        if failures:
            raise failures.pop()
        return start(work, ended)

    monkeypatch.setattr(lease_loop, "start", fail_at_first)

    port.clock.advance(60)

    assert failures == []
    assert all(lease.is_live() for lease in leases)


def test_loss_has_the_reason_why_no_renewal_could_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)

    def fail(port: Any) -> Any:
        raise RuntimeError("Working outside of application context.")

    monkeypatch.setattr(lease_loop, "port", fail)
    port.clock.advance(20)

    ((_, why),) = lease.notifications
    assert "RuntimeError: Working outside of application context." in why


def test_lease_is_renewed_once_its_client_is_available_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease_loop, port = new_lease_loop()
    lease, usual, failures = (
        HeldLease(port, "a", expire=10),
        lease_loop.port,
        [RuntimeError("no")] * 3,
    )

    def fail_at_first(port: Any) -> Any:
        if failures:
            raise failures.pop()
        return usual(port)

    monkeypatch.setattr(lease_loop, "port", fail_at_first)
    port.clock.advance(60)

    assert failures == []
    assert lease.is_live()


def test_loss_is_reported_in_time_though_every_renewal_is_cancelled() -> None:
    lease_loop, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=10)
    port.usual = paused(HOUR)

    for _ in range(2000):
        port.clock.advance(0.01)
        for work in lease_loop.works[:1]:
            work.cancel()

    ((at, _),) = lease.notifications
    assert abs(at - lease.claim.deadline) <= 0.05
    assert 5 < len(renewals(port)) < 40


# max_hold


def test_max_hold_counts_from_the_entry_of_a_waiter() -> None:
    _, port = new_lease_loop()
    lease = HeldLease(port, "a", expire=1, max_hold=1)
    claim = acquired(port, "b", expire=1)
    claim.entered = claim.since + 0.4  # the lock was granted before its waiter noticed
    waiter = HeldLease(port, claim=claim, expire=1, max_hold=1)

    port.clock.advance(5)

    ((ends, _),) = lease.notifications
    ((at, why),) = waiter.notifications
    assert at - claim.entered == pytest.approx(ends - lease.claim.since, abs=0.05)
    assert "max_hold" in why

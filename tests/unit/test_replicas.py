"""A lock with ``replicas`` is held only when they confirmed it."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as TimedOut
from support.faults import (
    Request,
    delayed,
    delivered,
    mismatched,
    raising,
    reply_lost,
    request_lost,
    resent,
    slow,
    swallowed,
    unsent,
)
from support.fencing import KEY, NUMBER, attempt
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedPort, SimulatedServer, cluster_port, new_claim

from redis_lock_decorators._flow.attempt import (
    LEAST_CONFIRMATION_SECONDS,
    LONGEST_CONFIRMATION_MS,
)
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._flow.wait_strategies import WaitStrategy
from redis_lock_decorators.errors import LockUnconfirmedError


def confirmed(*names: str, replicas: int = 1, expire: float = 10, fencing: bool = False) -> Claim:
    """A claim that replicas have to confirm."""
    claim = new_claim(*names, expire=expire, owner=object())
    claim.replicas, claim.fencing = replicas, fencing
    return claim


def test_lock_that_replicas_confirm_is_held_after_one_round_trip() -> None:
    port = SimulatedPort()
    port.server.replicas = 2

    refusal = attempt(port, confirmed("a", replicas=2))

    assert refusal is None
    assert port.verbs == ["acquire", "WAIT"]
    assert len({sent.at for sent in port.log}) == 1


@pytest.mark.parametrize("fencing", [False, True])
def test_lock_that_too_few_replicas_confirm_is_released(fencing: bool) -> None:
    port = SimulatedPort()
    port.server.replicas = 1

    with pytest.raises(LockUnconfirmedError, match="1 of 2 replicas confirmed") as caught:
        attempt(port, confirmed("a", replicas=2, fencing=fencing))

    assert caught.value.lock_name == "a"
    assert "INFO replication" in str(caught.value)
    assert port.server.value(KEY) is None
    assert port.held == {}
    assert "release" in port.verbs


def test_time_for_replicas_does_not_shorten_the_round_trip_limit() -> None:
    port = SimulatedPort()

    def held_back(request: Request) -> Any:
        milliseconds = request.command[-1][-1]
        return slow(milliseconds / 1000 + 0.9 * ROUND_TRIP)(request)

    port.faults = [held_back]

    with pytest.raises(LockUnconfirmedError, match="0 of 1 replicas"):
        attempt(port, confirmed("a"))


@pytest.mark.parametrize("strategy", ["steady", "poll", "queue", "cohort"])
@pytest.mark.parametrize("wait", [0, 0.05, 0.3, 1, 2.5, 3, 8])
def test_missing_replicas_are_waited_for_within_the_callers_time(
    wait: float, strategy: WaitStrategy
) -> None:
    server = SimulatedServer(Clock())
    attempt = SimulatedProcess(server).acquire(wait=wait, strategy=strategy)
    attempt.claim.replicas = 1

    server.clock.advance(60)

    assert isinstance(attempt.error, LockUnconfirmedError)
    assert attempt.at is not None
    assert attempt.at < max(wait, LEAST_CONFIRMATION_SECONDS) + LEAST_CONFIRMATION_SECONDS
    assert server.value(KEY) is None


def send_nothing(attempt: Acquisition) -> None:
    attempt.process.port.usual = unsent


def acquire_elsewhere(attempt: Acquisition) -> None:
    attempt.process.port.server.put(KEY, "another", 600)


@pytest.mark.parametrize("strategy", ["steady", "queue"])
@pytest.mark.parametrize("then", [send_nothing, acquire_elsewhere])
def test_missing_replicas_are_reported_though_the_last_try_ends_otherwise(
    strategy: WaitStrategy, then: Callable[[Acquisition], None]
) -> None:
    server = SimulatedServer(Clock())
    attempt = SimulatedProcess(server).acquire(wait=4, strategy=strategy)
    attempt.claim.replicas = 1
    server.clock.advance(2)
    then(attempt)

    server.clock.advance(100)

    assert isinstance(attempt.error, LockUnconfirmedError)
    assert server.value(KEY) in (None, "another")


def test_replicas_get_all_the_time_that_the_caller_has() -> None:
    port = SimulatedPort()

    with pytest.raises(LockUnconfirmedError):
        attempt(port, confirmed("a"), wait=0.8)

    assert next(sent.command[2] for sent in port.log if sent.verb == "WAIT") == 800


def test_silent_server_is_waited_for_as_long_as_for_replicas() -> None:
    port = SimulatedPort()
    port.usual = swallowed

    with pytest.raises(TimedOut):
        attempt(port, confirmed("a"), wait=3)

    assert 3 <= port.now() - 1000 < 3 + ROUND_TRIP


def test_lock_of_another_holder_is_unchanged_by_a_claim_with_replicas() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 600)

    refusal = attempt(port, confirmed("a"))

    assert refusal is not None
    assert refusal.holder == "another"
    assert "release" not in port.verbs
    assert port.server.value(KEY) == "another"


def test_late_release_does_not_affect_the_next_holder() -> None:
    port = SimulatedPort()
    port.faults = [None, slow(15)]
    port.clock.at(port.now() + 11, lambda: port.server.put(KEY, "the next", 60))

    with pytest.raises(LockUnconfirmedError):
        attempt(port, confirmed("a", expire=10))
    port.clock.advance(20)

    assert port.server.value(KEY) == "the next"


def test_late_release_does_not_affect_the_next_try() -> None:
    port = SimulatedPort()
    port.faults = [None, delayed(4)]
    port.clock.at(port.now() + 2, lambda: setattr(port.server, "replicas", 1))
    claim = confirmed("a", expire=10)

    refusal = attempt(port, claim, wait=8)
    port.clock.advance(5)

    assert refusal is None
    assert port.server.value(KEY) == claim.identifier


def test_unconfirmed_lock_of_several_slots_is_released_completely() -> None:
    port = cluster_port()
    claim = confirmed("a", "b")

    with pytest.raises(LockUnconfirmedError):
        attempt(port, claim)

    assert [port.server.value(key) for key in claim.keys] == [None, None]


def test_confirmed_slot_is_released_with_an_unconfirmed_one() -> None:
    port = cluster_port()
    claim, confirmations = confirmed("a", "b"), iter([1, 0])
    port.server._handlers["WAIT"] = lambda *_: next(confirmations)

    with pytest.raises(LockUnconfirmedError):
        attempt(port, claim)

    assert [port.server.value(key) for key in claim.keys] == [None, None]


def test_lock_is_waited_for_until_replicas_confirm() -> None:
    port = SimulatedPort()
    port.clock.at(port.now() + 3, lambda: setattr(port.server, "replicas", 1))
    claim = confirmed("a")

    refusal = attempt(port, claim, wait=10)

    assert refusal is None
    assert port.server.value(KEY) == claim.identifier
    assert port.now() < 1005


@pytest.mark.parametrize("expire", [0.001, 0.003, 0.02, 1, 10, 1000])
def test_replicas_are_waited_for_during_a_part_of_the_lease(expire: float) -> None:
    port = SimulatedPort()
    port.server.replicas = 1

    attempt(port, confirmed("a", expire=expire))

    (wait,) = [sent.command for sent in port.log if sent.verb == "WAIT"]
    assert 0 < wait[2] <= min(LONGEST_CONFIRMATION_MS, max(1, expire * 1000 / 4)), (
        "0 would wait indefinitely"
    )


@pytest.mark.parametrize(
    "fate", [reply_lost, request_lost, resent, mismatched(b"OK"), mismatched(5, b"x")]
)
def test_lost_or_mixed_up_replies_are_requested_again(fate: Any) -> None:
    port = SimulatedPort()
    port.server.replicas = 1
    port.faults = [fate]
    claim = confirmed("a", fencing=True)

    refusal = attempt(port, claim, wait=5)

    assert refusal is None
    assert port.server.value(KEY) == claim.identifier
    assert str(claim.fence) == port.server._hget(NUMBER, "fence")


def test_scripts_forgotten_by_the_server_are_sent_again_with_wait() -> None:
    port = SimulatedPort()
    port.server.replicas = 1
    port.server.loaded.clear()

    refusal = attempt(port, confirmed("a"))

    assert refusal is None
    assert port.verbs == ["acquire", "WAIT", "acquire", "WAIT"]


REPLICA = "WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if ..."
DEMOTED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> ...)"


@pytest.mark.parametrize("fencing", [False, True])
@pytest.mark.parametrize("sentence", [REPLICA, DEMOTED])
def test_waiter_for_a_lock_that_is_held_survives_a_failover(sentence: str, fencing: bool) -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 600)
    port.server.replicas = 1

    def demoted(request: Request) -> Any:
        reply, *_ = delivered(request)
        return [reply, ResponseError(sentence)]

    port.faults = [demoted, demoted]
    port.clock.at(port.now() + 2, lambda: port.server.drop(KEY))
    claim = confirmed("a", fencing=fencing)

    assert attempt(port, claim, wait=10) is None
    assert port.server.value(KEY) == claim.identifier


@pytest.mark.parametrize("sentence", [REPLICA, DEMOTED])
def test_lock_that_was_acquired_before_a_failover_is_acquired_again(sentence: str) -> None:
    port = SimulatedPort()
    port.server.replicas = 1
    port.faults = [lambda request: [delivered(request)[0], ResponseError(sentence)]]
    claim = confirmed("a")

    assert attempt(port, claim, wait=5) is None
    assert port.verbs == ["acquire", "WAIT"] * 2


def test_refused_wait_is_reported_while_another_holds_the_lock() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 600)
    port.server._handlers["WAIT"] = lambda *_: port.server.run(("NO",))

    with pytest.raises(ResponseError):
        attempt(port, confirmed("a"), wait=5)

    assert port.server.value(KEY) == "another"


def test_refused_wait_is_reported_and_the_lock_is_released() -> None:
    port = SimulatedPort()
    port.server._handlers["WAIT"] = lambda *_: port.server.run(("NO",))

    with pytest.raises(ResponseError):
        attempt(port, confirmed("a"))

    assert port.server.value(KEY) is None
    assert port.held == {}


def test_definite_error_of_the_acquisition_is_raised() -> None:
    port = SimulatedPort()
    port.faults = [raising(ResponseError("OOM command not allowed"))]

    with pytest.raises(ResponseError, match="OOM"):
        attempt(port, confirmed("a"))

    assert port.server.value(KEY) is None

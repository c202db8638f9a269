"""Acquisition: when the lock is tried, how long it is waited for, and that no key remains."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError, ResponseError
from redis.exceptions import TimeoutError as TimedOut
from support.faults import (
    delayed,
    delivered,
    interrupted,
    mismatched,
    paused,
    raising,
    reply_lost,
    request_lost,
    resent,
    slow,
    swallowed,
    timed_out,
    unsent,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim, taken

from redis_lock_decorators._flow.acquire import UNDO_TIME, acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.retries import OUTAGE, ROUND_TRIP, TIDYING
from redis_lock_decorators._flow.timeouts import end_of
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.errors import LockError

KEY = b"sys:lock:a"
#: Keys of two slots, in the order in which all clients acquire them.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)
WAITS = st.floats(min_value=0, max_value=20)
DELTAS = st.floats(min_value=0.01, max_value=5)
LATENCIES = st.floats(min_value=0, max_value=0.2)
SEEDS = st.integers(min_value=0, max_value=1000)


def cluster_port() -> SimulatedPort:
    return SimulatedPort(SimulatedServer(Clock(), cluster=True))


def tried(port: SimulatedPort) -> list[float]:
    return [sent.at for sent in port.log if sent.verb == "acquire"]


def attempt(
    port: SimulatedPort, claim: Claim, wait: float = 10, delta: float = 0.1
) -> Refusal | None:
    return run(acquire(port, claim, wait, delta))


# A server that is busy with other requests


@pytest.mark.parametrize("wait", [0.5, 20])
def test_request_that_was_never_sent_is_a_refusal_with_that_reason(wait: float) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.usual = unsent

    refusal = attempt(port, claim, wait=wait)

    assert refusal == Refusal(None, why="others were before it")
    assert wait <= port.now() - 1000 < wait + ROUND_TRIP + 0.1
    assert set(port.verbs) == {"acquire"}
    assert claim.state is ENDED


def test_request_is_queued_behind_others_for_longer_than_an_outage() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [unsent, unsent, unsent]

    refusal = attempt(port, claim, wait=60)

    assert refusal is None
    assert port.now() - 1000 > 3 * OUTAGE


def test_lost_reply_is_raised_rather_than_a_request_that_was_never_sent() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults, port.usual = [reply_lost], unsent

    with pytest.raises(Disconnected):
        attempt(port, claim, wait=0.5)


def test_request_never_sent_for_a_second_slot_releases_the_first() -> None:
    port, claim = cluster_port(), new_claim("a", "b")
    port.faults = [delivered, unsent]

    refusal = attempt(port, claim, wait=0)

    assert refusal == Refusal(None, why="others were before it")
    assert port.server.value(FIRST) is None
    assert port.server.value(SECOND) is None


# A free lock


def test_free_lock_is_acquired_by_one_request() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    refusal = attempt(port, claim)

    assert refusal is None
    assert port.verbs == ["acquire"]
    assert port.server.value(KEY) == claim.identifier


def test_server_that_does_not_know_the_script_is_sent_its_text() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.server.loaded.clear()

    refusal = attempt(port, claim)

    assert refusal is None
    assert [sent.command[0] for sent in port.log] == ["EVALSHA", "EVAL"]
    assert port.server.value(KEY) == claim.identifier


def test_deadline_is_counted_from_the_send_time() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=10)
    port.latency = 3

    attempt(port, claim)

    assert claim.deadline == pytest.approx(1000 + 10 - 0.102)
    assert port.server.left(KEY) == pytest.approx(10 - 1.5)


def test_lease_is_sent_in_milliseconds() -> None:
    port = SimulatedPort()
    port.latency = 0

    attempt(port, new_claim("a", expire=0.0005))

    assert port.server.left(KEY) == pytest.approx(0.001)


def test_held_lock_is_registered_in_the_port() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    attempt(port, claim)

    assert port.held == {KEY: claim}


def test_client_may_decode_replies() -> None:
    port = SimulatedPort(text=True)
    port.server.put(KEY, "another", 0.35)

    refusals = attempt(port, new_claim("a"), 0), attempt(port, new_claim("a"), 1)

    assert refusals[0] is not None
    assert refusals[0].holder == "another"
    assert refusals[1] is None


# A lock with another holder


def test_wait_of_zero_tries_exactly_once() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal is not None
    assert port.verbs == ["acquire"]
    assert port.pauses == []


def test_refusal_has_the_holder_and_its_remaining_time() -> None:
    port = SimulatedPort()
    port.latency = 0
    port.server.put(KEY, "another", 60)

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal == Refusal("another", 60.0)


def test_refusal_by_a_key_without_expiry_has_infinite_time() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another")

    refusal = attempt(port, new_claim("a"), wait=0)

    assert refusal == Refusal("another", math.inf)


def test_refused_acquisition_does_not_change_the_lease_of_the_holder() -> None:
    port = SimulatedPort()
    first, second = taken(port, "a"), new_claim("a")

    attempt(port, second, wait=0)

    assert port.server.value(KEY) == first.identifier
    assert port.held == {KEY: first}
    assert second.state is ENDED


def test_wait_shorter_than_the_pause_ends_with_a_try() -> None:
    port = SimulatedPort()
    port.latency = 0
    port.server.put(KEY, "another", 60)

    attempt(port, new_claim("a"), wait=0.05, delta=3)

    assert tried(port) == [1000, 1000.05]


def test_lock_that_becomes_free_during_a_short_wait_is_acquired_at_its_end() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 0.03)

    refusal = attempt(port, new_claim("a"), wait=0.05, delta=3)

    assert refusal is None


@given(wait=WAITS, delta=DELTAS, latency=LATENCIES, seed=SEEDS)
def test_waiter_gives_up_neither_early_nor_late(
    wait: float, delta: float, latency: float, seed: int
) -> None:
    port = SimulatedPort(seed=seed)
    port.latency = latency
    port.server.put(KEY, "another")

    refusal = attempt(port, new_claim("a"), wait, delta)

    waited = port.now() - 1000
    assert refusal is not None
    assert waited >= wait - 1e-6
    assert waited <= wait + 2 * latency + 1e-6
    assert tried(port)[-1] - 1000 >= wait - latency - 1e-6


@given(delta=DELTAS, free_at=st.floats(min_value=0, max_value=19), seed=SEEDS)
def test_waiter_acquires_a_freed_lock_within_a_pause(
    delta: float, free_at: float, seed: int
) -> None:
    port = SimulatedPort(seed=seed)
    port.server.put(KEY, "another")
    port.clock.at(1000 + free_at, lambda: port.server.drop(KEY))

    refusal = attempt(port, new_claim("a", expire=60), 20 + 2 * delta, delta)

    assert refusal is None
    assert port.now() - 1000 - free_at <= 1.5 * delta + 2 * port.latency + 1e-6


def test_waiter_without_a_limit_waits_until_the_lock_is_free() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 86_400)

    refusal = attempt(port, new_claim("a"), wait=math.inf, delta=60)

    assert refusal is None
    assert 86_400 <= port.now() - 1000 < 86_400 + 91


def test_pauses_vary_around_delta() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another")

    attempt(port, new_claim("a"), wait=100, delta=0.1)

    pauses = port.pauses[:-1]  # the end of the wait shortens the last one
    assert min(pauses) >= 0.05
    assert max(pauses) <= 0.15
    assert max(pauses) - min(pauses) > 0.08
    assert sum(pauses) / len(pauses) == pytest.approx(0.1, rel=0.05)


def test_two_waiters_do_not_poll_in_step() -> None:
    ports = [SimulatedPort(seed=seed) for seed in (1, 2)]
    for port in ports:
        port.server.put(KEY, "another")

    for port in ports:
        attempt(port, new_claim("a"), wait=10, delta=0.1)

    here, there = (tried(port)[1:-1] for port in ports)
    together = [at for at in here if any(abs(at - other) < 0.001 for other in there)]
    assert len(together) < len(here) / 10


# Requests that fail


@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lost_message_costs_no_pause_and_no_lock(fate: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [fate]

    refusal = attempt(port, claim)

    assert refusal is None
    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier
    assert sum(port.pauses) == 0


def test_wait_of_zero_survives_one_lost_reply() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [reply_lost]

    refusal = attempt(port, claim, wait=0)

    assert refusal is None
    assert port.verbs == ["acquire", "acquire"]


def test_deadline_after_lost_replies_is_counted_from_the_last_send_time() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=10)
    port.latency = 0.5
    port.faults = [reply_lost, reply_lost]

    attempt(port, claim)

    sent = tried(port)[-1]
    assert sent > 1001
    assert claim.deadline == pytest.approx(sent + 10 - 0.102)
    assert port.now() + port.server.left(KEY) > claim.deadline


def test_outage_shorter_than_the_wait_is_survived() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.usual = request_lost
    port.clock.at(1003, lambda: setattr(port, "usual", reply_lost))
    port.clock.at(1004, lambda: setattr(port, "usual", resent))

    refusal = attempt(port, claim, wait=10)

    assert refusal is None
    assert claim.is_live(port.now())


@pytest.mark.parametrize(("wait", "longest"), [(0, 0.1), (1, 1), (60, OUTAGE), (math.inf, OUTAGE)])
def test_dead_server_is_given_up_after_an_outage_or_the_wait(wait: float, longest: float) -> None:
    port = SimulatedPort()
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        attempt(port, new_claim("a"), wait)

    waited = port.now() - 1000
    assert waited <= longest + 2 * port.latency
    assert waited >= longest - 1 or longest < 1


def test_cleanup_of_a_failed_acquisition_is_queued_behind_other_requests() -> None:
    """Many may give up together: the server may answer other requests for more than a second."""
    asked = []

    class Noting(SimulatedPort):
        async def send(self, *command: Any, until: float) -> Any:
            asked.append((until - self.now(), end_of(until) - self.now()))
            if len(asked) == 1:
                raise KeyboardInterrupt
            return await super().send(*command, until=until)

    port = Noting()
    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.verbs == ["release"]
    assert asked[1:] == [(pytest.approx(ROUND_TRIP), pytest.approx(TIDYING))]


@pytest.mark.parametrize("wait", [0.0, 0.5, 1.0, 3.0])
def test_silent_server_ends_the_wait_in_time(wait: float) -> None:
    port = SimulatedPort()
    port.usual = swallowed

    with pytest.raises(TimedOut):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= max(wait, ROUND_TRIP) + UNDO_TIME + 1e-6
    assert port.verbs == ["acquire", "release"]


@pytest.mark.parametrize("wait", [60, math.inf])
def test_silent_server_is_an_outage_even_if_the_client_has_no_timeout(wait: float) -> None:
    port = SimulatedPort()
    port.usual, port.patience = swallowed, math.inf

    with pytest.raises(TimedOut):
        attempt(port, new_claim("a"), wait)

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP + UNDO_TIME


def test_each_outage_of_a_long_wait_has_its_own_limit() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 20)
    for start in (1002, 1008, 1014):
        port.clock.at(start, lambda: setattr(port, "usual", request_lost))
        port.clock.at(start + 4, lambda: setattr(port, "usual", reply_lost))
        port.clock.at(start + 4.5, lambda: setattr(port, "usual", resent))

    refusal = attempt(port, new_claim("a"), wait=30)

    assert refusal is None
    assert port.now() > 1020


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
        NoPermissionError("this user has no permissions to run the 'evalsha' command"),
        ValueError("the program is wrong"),
    ],
)
def test_definite_error_is_raised_immediately(error: Exception) -> None:
    port = SimulatedPort()
    port.faults = [raising(error)]

    with pytest.raises(type(error)) as caught:
        attempt(port, new_claim("a"))

    assert caught.value is error
    assert port.verbs == ["acquire", "release"]
    assert port.pauses == []


def test_definite_error_ends_the_repetitions() -> None:
    port = SimulatedPort()
    port.faults = [reply_lost, raising(ResponseError("OOM command not allowed"))]

    with pytest.raises(ResponseError, match="OOM"):
        attempt(port, new_claim("a"))

    assert port.verbs == ["acquire", "acquire", "release"]
    assert port.server.value(KEY) is None


def test_key_with_other_data_raises_an_error_of_the_lock() -> None:
    port = SimulatedPort()
    port.faults = [raising(ResponseError("WRONGTYPE Operation against a key holding the wrong"))]

    with pytest.raises(LockError, match="holds other data") as caught:
        attempt(port, new_claim("a"))

    assert caught.value.lock_name == "a"
    assert port.verbs == ["acquire", "release"]


# No key remains


@pytest.mark.parametrize(
    "faults",
    [
        [interrupted(KeyboardInterrupt())],
        [interrupted(SystemExit(), reply_left=True)],
        [interrupted(TimeoutError("a signal handler's"))],
        [reply_lost, interrupted(KeyboardInterrupt(), reply_left=True)],
        [reply_lost, raising(ResponseError("NOAUTH Authentication required."))],
        [reply_lost, request_lost],
        [timed_out],
    ],
)
def test_failed_acquisition_leaves_no_key(faults: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = faults

    with pytest.raises(BaseException):  # noqa: B017  # any of them
        attempt(port, claim, wait=0)

    assert "release" in port.verbs
    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())


def test_interrupt_while_waiting_leaves_no_key() -> None:
    def interrupt() -> None:
        port.server.drop(KEY)
        raise KeyboardInterrupt

    port = SimulatedPort()
    port.server.put(KEY, "another", 60)
    port.clock.at(1000.55, interrupt)

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"), wait=5)

    assert port.server.value(KEY) is None


def test_failed_acquisition_does_not_affect_the_holder() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)
    port.faults = [interrupted(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.server.value(KEY) == "another"


def test_lock_of_an_interrupted_acquisition_is_released_though_the_undo_is_cut_once() -> None:
    port = SimulatedPort()
    port.faults = [interrupted(KeyboardInterrupt()), request_lost]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert port.server.value(b"sys:lock:a") is None


def test_failed_cleanup_does_not_hide_the_error() -> None:
    port = SimulatedPort()
    port.faults, port.usual = [interrupted(KeyboardInterrupt())], request_lost

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    assert [str(error) for error in port.untidy] == ["the request was lost"]


def test_cleanup_at_a_failing_node_does_not_prevent_that_at_a_healthy_one() -> None:
    port = cluster_port()
    port.faults = [None, interrupted(KeyboardInterrupt()), request_lost]

    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a", "b"))

    assert port.server.value(SECOND) is None


# Replies to other requests


@pytest.mark.parametrize(
    "reply",
    [
        *(None, True, False, 0, 1, 1.5, b"OK", "OK", b"", "another:1", b"another:1"),
        *([], [None], [[]], [b"another:1"], [b"another:1", b"x", 5], [1, 2, 3], {}, {b"a": b"b"}),
        *(set(), {b"a"}, b"\xff\xfe", [b"\xff"]),
    ],
    ids=repr,
)
def test_reply_to_another_command_is_rejected(reply: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder == "another"
    assert port.idle_drops == 1
    assert port.verbs == ["acquire", "acquire"]


def test_reply_to_an_earlier_request_is_rejected() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [mismatched(f"{claim.identifier}:0")]

    refusal = attempt(port, claim)

    assert refusal is None
    assert port.idle_drops == 1
    assert claim.deadline == pytest.approx(tried(port)[1] + 10 - 0.102)


def test_unread_reply_after_an_interrupt_is_never_used_for_a_later_request() -> None:
    port, other = SimulatedPort(), new_claim("b")
    port.server.put(b"sys:lock:b", "another", 60)
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        attempt(port, new_claim("a"))

    refusal = attempt(port, other, wait=0)

    assert refusal is not None
    assert refusal.holder == "another"


def test_connection_that_always_mismatches_replies_ends_in_an_error_and_no_key() -> None:
    port = SimulatedPort()
    port.usual = mismatched(b"OK")

    with pytest.raises(LockError, match="another command"):
        attempt(port, new_claim("a"), wait=60)

    assert port.now() - 1000 <= OUTAGE + 0.1
    assert port.server.value(KEY) is None


# A reply that arrives too late


@pytest.mark.parametrize("pause", [0.99, 2.0, 100.0])
def test_lease_whose_reply_arrives_after_its_deadline_is_not_held(pause: float) -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [paused(pause)]

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder is None
    assert not claim.is_live(port.now())
    assert port.server.value(KEY) is None
    assert port.held == {}


def test_waiter_tries_again_after_a_reply_that_arrived_too_late() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [paused(2)]

    refusal = attempt(port, claim, wait=5)

    assert refusal is None
    assert claim.is_live(port.now())
    assert port.server.value(KEY) == claim.identifier


def test_lock_that_another_acquired_meanwhile_is_not_held_after_a_lost_reply() -> None:
    port, claim = SimulatedPort(), new_claim("a", expire=1)
    port.faults = [reply_lost, slow(2)]
    port.clock.at(1001.5, lambda: port.server.put(KEY, "another", 60))

    refusal = attempt(port, claim, wait=3)

    assert refusal is not None
    assert refusal.holder == "another"


# Several keys


def test_several_keys_of_one_server_use_one_request() -> None:
    port, claim = SimulatedPort(), new_claim("a", "b")

    refusal = attempt(port, claim)

    assert refusal is None
    assert port.verbs == ["acquire"]
    assert port.held == {FIRST: claim, SECOND: claim}
    assert port.server.value(FIRST) == port.server.value(SECOND) == claim.identifier


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("busy", [FIRST, SECOND])
def test_several_keys_are_held_all_or_none(cluster: bool, busy: bytes) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    (free,) = {FIRST, SECOND} - {busy}
    port.server.put(busy, "another", 60)

    refusal = attempt(port, new_claim("a", "b"), wait=0)

    assert refusal is not None
    assert refusal.holder == "another"
    assert port.server.value(free) is None
    assert port.held == {}


def test_keys_of_several_slots_are_acquired_in_the_order_of_the_slots() -> None:
    port, claim = cluster_port(), new_claim("b", "a")

    refusal = attempt(port, claim)

    assert refusal is None
    assert [sent.command[3] for sent in port.log] == [FIRST, SECOND]


def test_keys_of_one_slot_use_one_request_in_a_cluster() -> None:
    port = cluster_port()

    attempt(port, new_claim("{x}1", "{x}2"))

    assert port.verbs == ["acquire"]


def test_nothing_is_held_while_waiting_for_the_rest() -> None:
    class Sleeper(SimulatedPort):
        async def sleep(self, seconds: float) -> None:
            held_asleep.append(self.server.value(FIRST))
            await super().sleep(seconds)

    held_asleep: list[str | None] = []
    port = Sleeper(SimulatedServer(Clock(), cluster=True))
    port.server.put(SECOND, "another", 1)

    refusal = attempt(port, new_claim("a", "b"), wait=5)

    assert refusal is None
    assert len(held_asleep) > 5
    assert set(held_asleep) == {None}


def test_deadline_over_several_slots_is_counted_from_the_first_send_time() -> None:
    port, claim = cluster_port(), new_claim("a", "b", expire=10)
    port.latency = 2

    attempt(port, claim)

    assert claim.deadline == pytest.approx(1000 + 10 - 0.102)


@pytest.mark.parametrize(
    "lost", list(itertools.product([None, reply_lost, request_lost], repeat=3))
)
def test_lost_messages_between_the_slots_leave_all_or_none(lost: Any) -> None:
    port, claim = cluster_port(), new_claim("a", "b")
    port.server.put(SECOND, "another", 2)
    port.faults = list(lost)

    refused = attempt(port, claim, wait=1)
    left = port.server.value(FIRST)
    port.faults = list(lost)
    refusal = attempt(port, claim, wait=5)

    assert refused is not None
    assert left is None
    assert refusal is None
    assert port.server.value(FIRST) == port.server.value(SECOND) == claim.identifier


def test_late_release_of_a_failed_try_never_frees_a_key_that_is_held_later() -> None:
    port, claim = cluster_port(), new_claim("a", "b")
    port.server.put(SECOND, "another", 0.002)
    port.faults = [None, None, delayed(0.5)]

    refusal = attempt(port, claim)
    port.clock.advance(1)

    assert refusal is None
    assert claim.is_live(port.now())
    assert port.server.value(FIRST) == claim.identifier


def test_refusal_after_a_late_grant_leaves_no_key() -> None:
    port, claim = cluster_port(), new_claim("a", "b", expire=1)
    port.faults = [None, slow(1.2)]
    port.clock.at(1001.1, lambda: port.server.put(FIRST, "another", 60))

    refusal = attempt(port, claim, wait=1.5)

    assert refusal is not None
    assert refusal.holder == "another"
    assert port.server.value(SECOND) is None


def test_refusal_between_late_grants_leaves_no_key_of_any_slot() -> None:
    port, claim = cluster_port(), new_claim("a", "b", "c", expire=1)
    first, second, third = sorted(claim.keys, key=slot_of)
    port.faults = [None, None, slow(1.2)]
    port.clock.at(1001.1, lambda: port.server.put(second, "another", 60))

    refusal = attempt(port, claim, wait=1.5)

    assert refusal is not None
    assert refusal.holder == "another"
    assert port.server.value(first) is port.server.value(third) is None


# Waiting for a lock of one's own


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("b", "a")])
def test_waiting_for_a_lock_of_ones_own_is_an_error_immediately(names: tuple[str, ...]) -> None:
    port = SimulatedPort()
    mine = taken(port, "a", owner="me")

    with pytest.raises(LockError, match="would wait for itself") as caught:
        attempt(port, new_claim(*names, owner="me"))

    assert mine.is_live(port.now())
    assert caught.value.lock_name == "a"
    assert port.log == []
    assert port.now() < 1000.01


def test_block_that_moved_to_another_thread_is_waited_for() -> None:
    port = SimulatedPort()
    mine, other = taken(port, "a", owner="me"), new_claim("a", owner="me")
    asked: list[Claim] = []
    other.is_around = lambda claim: bool(asked.append(claim))

    refusal = attempt(port, other, wait=0.1)

    assert refusal is not None
    assert refusal.holder == mine.identifier
    assert asked == [mine]


def test_trying_once_for_a_lock_of_ones_own_is_refused_without_an_error() -> None:
    port = SimulatedPort()
    mine = taken(port, "a", owner="me")

    refusal = attempt(port, new_claim("a", owner="me"), wait=0)

    assert refusal is not None
    assert refusal.holder == mine.identifier
    assert port.held == {KEY: mine}


def test_another_thread_waits_for_the_lock() -> None:
    port = SimulatedPort()
    mine = taken(port, "a", owner="me")
    port.clock.at(1003, lambda: run(release(port, mine, "script")))

    refusal = attempt(port, new_claim("a", owner="you"))

    assert refusal is None


def test_expired_lease_of_ones_own_is_no_self_wait() -> None:
    port = SimulatedPort()
    over = taken(port, "a", owner="me", expire=1)
    port.clock.advance(0.99)

    refusal = attempt(port, new_claim("a", owner="me"))

    assert refusal is None
    assert not over.is_live(port.now())


def test_lease_that_no_code_can_release_is_waited_for() -> None:
    port = SimulatedPort()
    taken(port, "a", owner="me", expire=1)

    refusal = attempt(port, new_claim("a", owner="me"))

    assert refusal is None
    assert port.now() > 1000.9


def test_block_whose_release_failed_is_no_self_wait() -> None:
    port = SimulatedPort()
    mine = taken(port, "a", owner="me", expire=8)
    port.usual = request_lost
    run(leave(port, mine, "script", failed=False))
    port.usual = resent

    refusal = attempt(port, new_claim("a", owner="me"))

    assert refusal is None


def test_late_copy_gives_an_endless_lock_no_expiry() -> None:
    port = SimulatedPort()
    claim = new_claim("a")
    port.faults = [delayed(5), delivered]
    assert run(acquire(port, claim, 0, 0.005)) is None
    port.server.put(claim.keys[0], claim.identifier)  # without expiry, as redis-py's locks may be

    port.clock.advance(10)

    assert port.server.left(claim.keys[0]) == math.inf


@pytest.mark.parametrize("fencing", [False, True])
@pytest.mark.parametrize("busy", ["a", "b"])
@pytest.mark.parametrize("is_cluster", [False, True])
def test_refusal_of_several_names_has_the_busy_one(
    busy: str, fencing: bool, is_cluster: bool
) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=is_cluster))
    if is_cluster and fencing:
        pytest.skip("several slots have no number")
    taken(port, busy, owner="another")
    claim = new_claim("a", "b", owner="me")
    claim.fencing = fencing

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder is not None
    assert refusal.why == f"'{busy}' is held by {refusal.holder[:8]}…"

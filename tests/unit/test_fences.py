"""Fences always grow, and belong to the request that acquired the lock."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import (
    delayed,
    mismatched,
    reply_lost,
    request_lost,
    resent,
)
from support.fencing import KEY, NUMBER, attempt, fenced
from support.simulation import Clock, SimulatedPort, SimulatedServer, cluster_port, new_claim

from redis_lock_decorators._flow.attempt import (
    FENCE_TTL_MS,
)
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.testing.fake.clock import EPOCH

HOUR = 3600.0


def numbered(port: SimulatedPort, *names: str, expire: float = 10) -> Claim:
    """A claim with a fence."""
    claim = fenced(*names, expire=expire)
    assert attempt(port, claim) is None
    assert claim.fence is not None
    return claim


# Fences


def test_lock_is_acquired_and_gets_its_fence_by_one_request() -> None:
    port = SimulatedPort()

    claim = numbered(port, "a")

    assert port.verbs == ["acquire_fenced"]
    assert port.server.value(KEY) == claim.identifier
    assert claim.deadline == pytest.approx(1000 + 10 - 0.102)


def test_fence_is_the_servers_clock_in_microseconds() -> None:
    port = SimulatedPort()
    port.latency = 0

    claim = numbered(port, "a")

    assert claim.fence == port.server.time() == EPOCH + 1000 * 1_000_000
    assert claim.fence < 2**53


def test_fence_is_stored_for_a_minute() -> None:
    port = SimulatedPort()

    numbered(port, "a")

    assert port.server.left(NUMBER) == pytest.approx(60, abs=1)


def test_lock_without_fencing_has_no_fence() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    attempt(port, claim)

    assert claim.fence is None
    assert port.server.left(NUMBER) == 0


def test_client_may_decode_replies() -> None:
    port = SimulatedPort(text=True)

    claim = numbered(port, "a")

    assert isinstance(claim.fence, int)


def nothing(server: SimulatedServer) -> None:
    pass


def expire(server: SimulatedServer) -> None:
    server.clock.advance(11)


def expire_with_its_number(server: SimulatedServer) -> None:
    server.clock.advance(FENCE_TTL_MS / 1000 + 1)


def flush(server: SimulatedServer) -> None:
    server.run(("FLUSHALL",))


def step_back(server: SimulatedServer) -> None:
    server.drop(KEY)
    server.stepped -= HOUR


def step_forward_and_back(server: SimulatedServer) -> None:
    server.stepped += HOUR / 2
    server.stepped -= HOUR


def fail_over_without_the_number(server: SimulatedServer) -> None:
    server.drop(NUMBER)
    server.clock.advance(2)  # a failover takes longer than clocks differ
    server.stepped -= 1


@pytest.mark.parametrize(
    "event",
    [
        *(nothing, expire, expire_with_its_number, flush, step_back, step_forward_and_back),
        fail_over_without_the_number,
    ],
    ids=lambda event: event.__name__,
)
def test_fence_grows_whatever_happens_between_two_holders(event: Any) -> None:
    port = SimulatedPort()
    first = numbered(port, "a")

    event(port.server)
    port.server.drop(KEY)
    second = numbered(port, "a")

    assert first.fence is not None
    assert second.fence is not None
    assert second.fence > first.fence


def test_fence_grows_by_one_while_the_clock_is_behind() -> None:
    port = SimulatedPort()
    first = numbered(port, "a")
    run(release(port, first, "script"))
    port.server.stepped -= HOUR

    second = numbered(port, "a")

    assert first.fence is not None
    assert second.fence == first.fence + 1


def test_refusal_uses_up_no_fence() -> None:
    port = SimulatedPort()
    holder = numbered(port, "a")

    refused = fenced("a")
    refusal = attempt(port, refused)

    assert refusal is not None
    assert refusal.holder == holder.identifier
    assert refusal.free_in == pytest.approx(10, abs=0.01)
    assert refused.fence is None
    assert port.server.value(KEY) == holder.identifier


@given(events=st.lists(st.sampled_from([nothing, expire, step_back, step_forward_and_back])))
def test_fences_grow_over_any_history_of_clocks(events: list[Any]) -> None:
    port = SimulatedPort()
    numbers = []

    for event in [nothing, *events]:
        event(port.server)
        port.server.drop(KEY)
        numbers.append(numbered(port, "a").fence or 0)

    assert numbers == sorted(set(numbers))


# Repeated requests


@pytest.mark.parametrize("fate", [reply_lost, resent])
def test_repeated_request_keeps_its_fence(fate: Any) -> None:
    port, claim = SimulatedPort(), fenced("a")
    port.latency = 0.1
    port.faults = [fate]

    attempt(port, claim)

    first = port.log[0].at + (0.05 if fate is reply_lost else 0)
    assert claim.fence == EPOCH + round(first * 1_000_000)
    assert port.server._hget(NUMBER, "fence") == str(claim.fence)


def test_request_that_was_never_run_has_no_fence() -> None:
    port = SimulatedPort()
    port.latency = 0.1
    port.faults = [request_lost]

    claim = numbered(port, "a")

    assert claim.fence is not None
    assert claim.fence > EPOCH + 1000.1 * 1_000_000


def test_late_copy_neither_shortens_the_lease_nor_changes_its_fence() -> None:
    port, claim = SimulatedPort(), fenced("a", expire=10)
    port.faults = [delayed(2)]
    attempt(port, claim)
    port.server.put(KEY, claim.identifier, 60)

    port.clock.advance(3)

    assert port.server.left(KEY) > 50
    assert port.server._hget(NUMBER, "fence") == str(claim.fence)


@pytest.mark.parametrize("reply", [None, b"OK", 1, [b"x:1", 5], [b"x:1", b"y", 1]], ids=repr)
def test_fence_of_another_reply_is_rejected(reply: Any) -> None:
    port, claim = SimulatedPort(), fenced("a")
    port.faults = [mismatched(reply)]

    attempt(port, claim)

    assert port.idle_drops == 1
    assert str(claim.fence) == port.server._hget(NUMBER, "fence")


# Several names


@pytest.mark.parametrize("cluster", [False, True])
def test_names_of_one_slot_share_a_fence(cluster: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    names = ("{x}1", "{x}2", "{x}3")

    claim = numbered(port, *names)

    stored = {port.server._hget(companion(key, b"fence"), "fence") for key in claim.keys}
    assert stored == {str(claim.fence)}


def test_fence_of_several_names_is_greater_than_that_of_any_of_them() -> None:
    port = SimulatedPort()
    port.latency = 0
    first = numbered(port, "b")
    run(release(port, first, "script"))
    port.server.stepped -= HOUR

    both = numbered(port, "a", "b")
    run(release(port, both, "script"))
    last = numbered(port, "a")

    assert first.fence is not None
    assert both.fence == first.fence + 1
    assert last.fence == first.fence + 2


def test_names_of_different_slots_are_refused_before_any_request() -> None:
    port, claim = cluster_port(), fenced("a", "b")

    with pytest.raises(ConfigurationError, match="hash tag"):
        attempt(port, claim)

    assert port.log == []
    assert port.held == {}


def test_names_of_different_slots_are_allowed_on_one_server() -> None:
    assert numbered(SimulatedPort(), "a", "b").fence is not None


def test_one_busy_name_leaves_the_others_free_and_without_fence() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)

    refusal = attempt(port, fenced("a", "b"))

    assert refusal is not None
    assert port.server.value(b"sys:lock:b") is None
    assert port.server.left(companion(b"sys:lock:b", b"fence")) == 0


@pytest.mark.parametrize("name", ["a", "order{7}", "a}b", "{a"])
def test_lock_named_like_the_fence_key_of_another_is_a_separate_lock(name: str) -> None:
    port = SimulatedPort()

    first, second = numbered(port, name), numbered(port, f"{name}:fence")

    assert port.server.value(first.keys[0]) == first.identifier
    assert port.server.value(second.keys[0]) == second.identifier

"""Acquisition of several keys, and waits for a lock that the caller holds."""

import itertools
import math
from typing import Any

import pytest
from support.acquiring import attempt
from support.faults import (
    delayed,
    delivered,
    reply_lost,
    request_lost,
    resent,
    slow,
)
from support.releases import FIRST, KEY, SECOND
from support.simulation import (
    Clock,
    SimulatedPort,
    SimulatedServer,
    acquired,
    cluster_port,
    new_claim,
)

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.errors import LockError

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


def test_deadline_over_several_slots_starts_at_the_first_send_time() -> None:
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


def test_late_release_of_a_failed_try_does_not_release_a_later_lock() -> None:
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


# Waits for a lock that the caller holds


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("b", "a")])
def test_waiting_for_a_lock_of_the_caller_is_an_error_immediately(names: tuple[str, ...]) -> None:
    port = SimulatedPort()
    mine = acquired(port, "a", owner="me")

    with pytest.raises(LockError, match="would wait for itself") as caught:
        attempt(port, new_claim(*names, owner="me"))

    assert mine.is_live(port.now())
    assert caught.value.lock_name == "a"
    assert port.log == []
    assert port.now() < 1000.01


def test_block_that_moved_to_another_thread_is_waited_for() -> None:
    port = SimulatedPort()
    mine, other = acquired(port, "a", owner="me"), new_claim("a", owner="me")
    asked: list[Claim] = []
    other.is_inside = lambda claim: bool(asked.append(claim))

    refusal = attempt(port, other, wait=0.1)

    assert refusal is not None
    assert refusal.holder == mine.identifier
    assert asked == [mine]


def test_single_try_for_a_lock_of_the_caller_is_only_refused() -> None:
    port = SimulatedPort()
    mine = acquired(port, "a", owner="me")

    refusal = attempt(port, new_claim("a", owner="me"), wait=0)

    assert refusal is not None
    assert refusal.holder == mine.identifier
    assert port.held == {KEY: mine}


def test_another_thread_waits_for_the_lock() -> None:
    port = SimulatedPort()
    mine = acquired(port, "a", owner="me")
    port.clock.at(1003, lambda: run(release(port, mine, "script")))

    refusal = attempt(port, new_claim("a", owner="you"))

    assert refusal is None


def test_expired_lease_of_the_caller_is_no_self_wait() -> None:
    port = SimulatedPort()
    over = acquired(port, "a", owner="me", expire=1)
    port.clock.advance(0.99)

    refusal = attempt(port, new_claim("a", owner="me"))

    assert refusal is None
    assert not over.is_live(port.now())


def test_lease_that_no_code_can_release_is_waited_for() -> None:
    port = SimulatedPort()
    acquired(port, "a", owner="me", expire=1)

    refusal = attempt(port, new_claim("a", owner="me"))

    assert refusal is None
    assert port.now() > 1000.9


def test_block_whose_release_failed_is_no_self_wait() -> None:
    port = SimulatedPort()
    mine = acquired(port, "a", owner="me", expire=8)
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
    port.server.put(claim.keys[0], claim.identifier)  # without expiry, like some locks of redis-py

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
    acquired(port, busy, owner="another")
    claim = new_claim("a", "b", owner="me")
    claim.fencing = fencing

    refusal = attempt(port, claim, wait=0)

    assert refusal is not None
    assert refusal.holder is not None
    assert refusal.why == f"'{busy}' is held by {refusal.holder[:8]}…"

"""Other structures that threads share, with thread switches at any line."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from support.simulation import SimulatedPort, acquired, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import LEAST, HeldClaims
from redis_lock_decorators._flow.queue.cohort import Cohort, hand_off, settle
from redis_lock_decorators._flow.queue.cohort_waiter import CohortWaiter
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.background.wakeups import ThreadWakeup
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_sources import ClientSource, FactoryCalls
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.transport import private_pool as private_pools
from redis_lock_decorators._io.transport.origins import origin
from redis_lock_decorators._io.transport.private_pool import MAX_IDLE, PrivatePool

HELD = Scenes("_flow/held_claims")
COHORT = Scenes("_flow/queue/cohort", "_flow/queue/cohort_waiter")
CLAIM = Scenes("_flow/term", "_flow/lease_ends")
WAITER = Scenes("_io/background/wakeups")
CLIENTS = Scenes("_io/client_state", "_io/client_sources", "_io/per_factory", "_io/per_client")
#: Also between the lines of the connections here, where a request waits.
PRIVATE_POOL = Scenes("_io/transport/private_pool", "unit/test_switching_shared")


# The claims held through a client


def held_claim(name: str, since: float = 1000.0) -> Claim:
    claim = new_claim(name, owner="me")
    claim.mark_held(since)
    return claim


def is_held(held: HeldClaims, *claims: Claim) -> None:
    assert dict(held) == {key: claim for claim in claims for key in claim.keys}


@HELD.add
def two_threads_forget_one_claim(switcher: Switcher) -> Scene:
    held, claim = HeldClaims(), held_claim("a")
    held.note(claim, lambda: 1000.0)
    return Scene(lambda: held.forget(claim), lambda: held.forget(claim), lambda: is_held(held))


@HELD.add
def a_lost_claim_is_forgotten_while_its_key_is_taken(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    held.note(lost, lambda: 1000.0)
    return Scene(
        lambda: held.forget(lost),
        lambda: held.note(next_member, lambda: 1000.0),
        lambda: is_held(held, next_member),
    )


@HELD.add
def claims_that_are_over_are_searched_for_while_one_is_taken(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    many = [held_claim(f"many {number}", 900.0) for number in range(LEAST - 2)]
    for claim in (lost, *many):
        held.note(claim, lambda: 1000.0)
    one = held_claim("one")
    return Scene(
        lambda: held.note(one, lambda: 1000.0),
        lambda: held.note(next_member, lambda: 1000.0),
        lambda: all_known(held, one, next_member),
    )


@HELD.add
def two_threads_search_for_claims_that_are_over(switcher: Switcher) -> Scene:
    held, one, other = HeldClaims(), held_claim("one"), held_claim("other")
    many = [held_claim(f"many {number}", 900.0) for number in range(LEAST - 1)]
    for claim in many[::2]:
        held.note(claim, lambda: 1000.0)
    del many[:10]  # of these only the keys are left
    held._limit = 8

    def check() -> None:
        all_known(held, one, other)
        is_held(held, one, other)

    return Scene(
        lambda: held.note(one, lambda: 1000.0), lambda: held.note(other, lambda: 1000.0), check
    )


@HELD.add
def a_key_is_looked_up_while_its_claim_is_forgotten(switcher: Switcher) -> Scene:
    held, claim, other = HeldClaims(), held_claim("a"), held_claim("b")
    held.note(claim, lambda: 1000.0)
    held.note(other, lambda: 1000.0)
    found: list[Claim | None] = []

    def look_up() -> None:
        found.extend([held.get(claim.keys[0]), held.get(other.keys[0])])

    def check() -> None:
        assert found[0] in (claim, None)
        assert found[1] is other

    return Scene(look_up, lambda: held.forget(claim), check)


@HELD.add
def a_successor_takes_a_key_while_two_threads_forget(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    held.note(lost, lambda: 1000.0)

    def take_over() -> None:
        held.forget(lost)
        held.note(next_member, lambda: 1000.0)

    return Scene(take_over, lambda: held.forget(lost), lambda: is_held(held, next_member))


def all_known(held: HeldClaims, *claims: Claim) -> None:
    assert [held.get(claim.keys[0]) for claim in claims] == list(claims)


# The end of a lease


def believed_until(claim: Claim, deadline: float, lasts: float) -> None:
    assert claim.deadline == pytest.approx(deadline, abs=1.1)
    assert claim.deadline <= deadline
    assert claim.duration == lasts


def moved(claim: Claim, known: float, sent: float, seconds: float) -> None:
    """Its end is moved nearer by a request whose answer is known at a time."""
    claim.confirm_shortened(claim.shorten(sent + 10.0, sent, seconds), known)


@CLAIM.add
def a_lease_is_extended_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: claim.prolong(1003.0, 10.0),
        lambda: claim.prolong(1003.0, 100.0),
        lambda: believed_until(claim, 1103.0, 100.0),
    )


@CLAIM.add
def a_lease_is_extended_twice_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")

    def extend() -> None:
        claim.prolong(1003.0, 30.0)
        claim.prolong(1004.0, 100.0)

    return Scene(
        lambda: claim.prolong(1003.5, 10.0), extend, lambda: believed_until(claim, 1104.0, 100.0)
    )


@CLAIM.add
def the_end_of_a_lease_is_moved_nearer_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: claim.prolong(1003.0, 30.0),
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: believed_until(claim, 1006.0, 2.0),
    )


@CLAIM.add
def a_lease_is_extended_after_its_end_was_moved_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")

    def extend() -> None:
        moved(claim, 1005.0, 1004.0, 2.0)
        claim.prolong(1005.5, 50.0)

    return Scene(
        lambda: claim.prolong(1003.0, 30.0), extend, lambda: believed_until(claim, 1055.5, 50.0)
    )


@CLAIM.add
def two_threads_move_the_end_of_a_lease_nearer(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: moved(claim, 1005.5, 1004.5, 3.0),
        lambda: believed_until(claim, 1006.0, 2.0),
    )


@CLAIM.add
def the_end_is_moved_nearer_by_one_thread_and_away_by_another(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: claim.add_end(1004.5, 50.0),
        lambda: believed_until(claim, 1006.0, 2.0),
    )


@CLAIM.add
def the_end_of_a_lease_is_moved_nearer_while_another_such_move_is_refused(
    switcher: Switcher,
) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 3.0),
        lambda: claim.cancel_shortening(claim.shorten(1014.0, 1004.0, 2.0)),
        lambda: believed_until(claim, 1007.0, 3.0),
    )


# Cohorts


class FakeWakeup:
    """Records the signals that it is sent."""

    def __init__(self) -> None:
        self.signal: list[Signal] = []

    def notify(self, signal: Signal) -> None:
        self.signal.append(signal)


def new_waiter(name: str = "a") -> CohortWaiter:
    claim = new_claim(name)
    claim.cohort_waiter = CohortWaiter(claim, FakeWakeup())  # type: ignore[arg-type]
    return claim.cohort_waiter


def held_in_cohort(*, waiting: int = 1) -> tuple[SimulatedPort, Cohort, Claim, list[CohortWaiter]]:
    port, cohort = SimulatedPort(), Cohort()
    holder = acquired(port, "a")
    holder.cohort, cohort.holder, cohort.since = cohort, holder, port.now()
    waiters = [new_waiter() for _ in range(waiting)]
    for one in waiters:
        cohort.add(one)
    return port, cohort, holder, waiters


def is_held_by(next_member: CohortWaiter, identifier: str) -> bool:
    """Whether a waiter holds the lock once it has settled."""
    settle(next_member.claim)
    return next_member.claim.identifier == identifier


@COHORT.add
def only_member_withdraws_during_a_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member,) = held_in_cohort()
    identifier, found = holder.identifier, {}

    def check() -> None:
        assert found["handed"] is not found["gone"], "handed to no waiting member"
        assert found["handed"] is is_held_by(next_member, identifier) is not bool(holder.identifier)

    return Scene(
        lambda: found.update(handed=hand_off(port, holder)),
        lambda: found.update(gone=cohort.withdraw(next_member)),
        check,
    )


@COHORT.add
def first_member_withdraws_during_a_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member, second) = held_in_cohort(waiting=2)
    identifier, found = holder.identifier, {}

    def check() -> None:
        assert found["handed"]
        assert is_held_by(next_member, identifier) is not found["gone"]
        assert is_held_by(second, identifier) is found["gone"]
        assert cohort.holder is (second if found["gone"] else next_member).claim

    return Scene(
        lambda: found.update(handed=hand_off(port, holder)),
        lambda: found.update(gone=cohort.withdraw(next_member)),
        check,
    )


@COHORT.add
def next_member_settles_during_the_hand_off(switcher: Switcher) -> Scene:
    port, cohort, holder, (next_member,) = held_in_cohort()
    identifier = holder.identifier

    def leave() -> None:
        """What a waiter does at the end of its wait."""
        cohort.withdraw(next_member)
        settle(next_member.claim)
        cohort.step_down(next_member, port.now())

    def check() -> None:
        holders = [claim for claim in (holder, next_member.claim) if claim.identifier == identifier]
        assert len(holders) == 1, "held by both or by none"
        assert holders[0].is_live(port.now())

    return Scene(lambda: hand_off(port, holder), leave, check)


@COHORT.add
def two_waiters_want_to_lead(switcher: Switcher) -> Scene:
    cohort, one, other, led = Cohort(), new_waiter(), new_waiter(), []

    def lead(waiter: CohortWaiter) -> None:
        cohort.add(waiter)
        if cohort.lead(waiter, 1000.0):
            led.append(waiter)

    def check() -> None:
        assert len(led) == 1

    return Scene(lambda: lead(one), lambda: lead(other), check)


@COHORT.add
def waiter_joins_while_the_leader_steps_down(switcher: Switcher) -> Scene:
    cohort, leader, waiter, led = Cohort(), new_waiter(), new_waiter(), []
    cohort.add(leader)
    assert cohort.lead(leader, 1000.0)

    def step_down() -> None:
        cohort.withdraw(leader)
        cohort.step_down(leader, 1000.0)

    def join() -> None:
        cohort.add(waiter)
        led.append(cohort.lead(waiter, 1000.0))

    def check() -> None:
        assert led == [True] or waiter.wakeup.signal, "there is no leader"  # type: ignore[attr-defined]

    return Scene(step_down, join, check)


@COHORT.add
def two_waiters_leave(switcher: Switcher) -> Scene:
    _, cohort, _, (one, other) = held_in_cohort(waiting=2)
    return Scene(lambda: cohort.withdraw(one), lambda: cohort.withdraw(other), lambda: idle(cohort))


def idle(cohort: Cohort) -> None:
    assert cohort.is_idle()


# A thread that waits for signals


def waiter_of(switcher: Switcher) -> ThreadWakeup:
    waiter = ThreadWakeup(lambda: None)
    waiter._gate._lock = switcher.lock(taken=True)  # type: ignore[assignment]
    return waiter


@WAITER.add
def signal_arrives_while_a_thread_begins_to_wait(switcher: Switcher) -> Scene:
    waiter, received = waiter_of(switcher), []
    return Scene(
        lambda: received.append(run(waiter.wait(1e6))),  # type: ignore[arg-type]
        lambda: waiter.notify(Signal.GRANTED),
        lambda: are_received(received, Signal.GRANTED),
    )


@WAITER.add
def two_signals_arrive(switcher: Switcher) -> Scene:
    waiter, received = waiter_of(switcher), []

    def wait() -> None:
        received.extend([run(waiter.wait(1e6)), run(waiter.wait(1e6))])  # type: ignore[arg-type]

    def notify() -> None:
        waiter.notify(Signal.RETRY)
        waiter.notify(Signal.GRANTED)

    return Scene(wait, notify, lambda: are_received(received, Signal.RETRY, Signal.GRANTED))


@WAITER.add
def two_threads_notify(switcher: Switcher) -> Scene:
    waiter = waiter_of(switcher)

    def check() -> None:
        assert {run(waiter.wait(0)), run(waiter.wait(0))} == {Signal.RETRY, Signal.GRANTED}  # type: ignore[arg-type]

    return Scene(lambda: waiter.notify(Signal.RETRY), lambda: waiter.notify(Signal.GRANTED), check)


def are_received(received: list[Any], *signal: Signal) -> None:
    assert received == [*signal]


# Clients and their connections


class NoLoop:
    renewer = wanted = None

    def __init__(self) -> None:
        self.clients: PerClient[Any] = PerClient()

    @staticmethod
    def now() -> float:
        return 1000.0


def same(found: list[Any], made: list[Any] | None = None) -> Callable[[], None]:
    def check() -> None:
        assert found[0] is found[1]
        assert made is None or len(made) == 1

    return check


@CLIENTS.add
def two_threads_need_a_client_first(switcher: Switcher) -> Scene:
    connections = ClientSource(PrivatePool, NoLoop(), awaited=False)  # type: ignore[arg-type]
    made: list[Any] = []
    found: list[Any] = []

    def factory() -> Any:
        made.append(redis.Redis())
        return made[-1]

    making = connections._calls.setdefault(factory, FactoryCalls())
    making.lock = switcher.lock()  # type: ignore[assignment]

    def use() -> None:
        found.append(connections.client(factory))

    return Scene(use, use, same(found, made))


@CLIENTS.add
def two_threads_learn_of_a_client(switcher: Switcher) -> Scene:
    connections = ClientSource(PrivatePool, NoLoop(), awaited=False)  # type: ignore[arg-type]
    client, found = redis.Redis(), []

    def use() -> None:
        found.append(connections.client_state(client))

    return Scene(use, use, same(found))


@CLIENTS.add
def two_threads_need_a_subscriber(switcher: Switcher) -> Scene:
    port, found = SimulatedPort(), []
    client_state = ClientState(redis.Redis(), PrivatePool(), NoLoop())  # type: ignore[arg-type]

    def use() -> None:
        found.append(client_state.subscriber(port, b"a"))

    return Scene(use, use, same(found))


@CLIENTS.add
def two_threads_need_a_cohort(switcher: Switcher) -> Scene:
    found: list[Any] = []
    client_state = ClientState(redis.Redis(), PrivatePool(), NoLoop())  # type: ignore[arg-type]

    def use() -> None:
        found.append(client_state.cohort(b"a", 1000))

    return Scene(use, use, same(found))


POOL = redis.ConnectionPool()


class Wire:
    """One that answers at once, and knows whether two requests use it at a time."""

    connection = None
    origin = origin(POOL)

    def __init__(self, *, is_broken: bool = False, is_stale: bool = False) -> None:
        self.is_in_use = False
        self.is_open = True
        self.is_broken = is_broken
        self.is_stale = lambda: is_stale

    def exchange(self, data: bytes, count: int, until: float) -> list[Any]:
        assert not self.is_in_use, "two requests use one connection"
        self.is_in_use = True
        answered()  # others may go on meanwhile
        assert self.is_open, "a closed connection is used"
        self.is_in_use = False
        if self.is_broken:
            raise redis.ConnectionError("gone")
        return [b"OK"] * count

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False


def answered() -> None:
    """A line on which a request waits for its reply."""


def new_private_pool(*wires: Wire) -> tuple[PrivatePool, list[Wire]]:
    private_pool = PrivatePool()
    private_pool._idle += wires  # type: ignore[arg-type]
    return private_pool, list(wires)


def exchanging(private_pool: PrivatePool) -> Callable[[], None]:
    def exchange() -> None:
        with suppress(redis.ConnectionError):
            assert private_pool.exchange(POOL, ("PING",), math.inf) == b"OK"

    return exchange


def in_order(private_pool: PrivatePool, wires: list[Wire]) -> Callable[[], None]:
    """A check: each connection is kept, once, or closed."""

    def check() -> None:
        assert len(set(map(id, private_pool._idle))) == len(private_pool._idle) <= MAX_IDLE
        assert all(wire.is_open is (wire in private_pool._idle) for wire in wires)

    return check


@PRIVATE_POOL.add
def two_threads_send_requests(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire())
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def two_threads_want_the_last_connection(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire())
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def two_threads_find_stale_connections(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(*[Wire(is_stale=True) for _ in range(3)])
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


@PRIVATE_POOL.add
def idle_connections_are_dropped_while_a_request_is_sent(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire(), Wire())
    return Scene(exchanging(private_pool), private_pool.drop, in_order(private_pool, wires))


@PRIVATE_POOL.add
def a_connection_breaks_while_a_request_is_sent(switcher: Switcher) -> Scene:
    private_pool, wires = new_private_pool(Wire(), Wire(is_broken=True), Wire(is_broken=True))
    return Scene(exchanging(private_pool), exchanging(private_pool), in_order(private_pool, wires))


GROUPS = (HELD, CLAIM, COHORT, WAITER, CLIENTS, PRIVATE_POOL)
ALL = [(scenes, scene) for scenes in GROUPS for scene in scenes]


@pytest.mark.parametrize(("scenes", "scene"), ALL, ids=[name_of(scene) for _, scene in ALL])
def test_structures_are_consistent_with_thread_switches_at_any_line(
    scenes: Scenes, scene: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_pools, "connected", lambda pool, until: Wire())

    assert scenes.explore(scene) > 5

"""Waiters of one process that pass a lock on, in virtual time: order, bounds, nobody forgotten."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.faults import raising
from support.simulated_queue import QueuePort, Taking, Waiting
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.acquire import acquire, undo
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.queue.cohort import (
    MOST_HAND_OFFS,
    MOST_QUICK,
    MOST_SECONDS,
    Cohort,
    hand_off,
    settle,
)
from redis_lock_decorators._flow.queue.cohort_wait import RECHECK
from redis_lock_decorators._flow.queue.cohort_waiter import SILENCE, CohortWaiter
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.renewal.renewed_lease import TrackedLease
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_state import MOST_COHORTS, ClientState
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.errors import LockLostError, LockNotOwnedError

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
#: Long enough for some requests, shorter than a waiter's pause between two looks.
SOON = 0.02
#: Enough that nobody gives up by itself.
PATIENCE = 100


class World:
    """A server and the processes that wait there."""

    def __init__(self) -> None:
        self.server = SimulatedServer(Clock())
        self.clock = self.server.clock
        self.processes: list[Waiting] = []
        self.takings: list[Taking] = []

    def process(self) -> Waiting:
        self.processes.append(Waiting(self.server, len(self.processes)))
        return self.processes[-1]

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def takes(
        self,
        process: Waiting,
        wait: float = PATIENCE,
        *,
        kind: Any = Taking,
        name: str = "a",
        **options: Any,
    ) -> Taking:
        """One who waits, or holds if nobody else does, after a moment."""
        taking = kind(process, name, wait, **{"way": "cohort", **options})
        self.takings.append(taking)
        self.passes(0.001)
        return taking

    def crowd(self, process: Waiting, count: int, **options: Any) -> list[Taking]:
        """So many, in this order; the first of them holds the lock if nobody else does."""
        takings = [self.takes(process, **options) for _ in range(count)]
        self.passes(SOON)
        return takings

    def inside(self) -> Taking | None:
        """Who holds the lock; fails if two do."""
        live = [taking for taking in self.takings if taking.is_live]
        assert len(live) < 2
        return live[0] if live else None

    def serves(self, hold: float = 0.0) -> list[Taking]:
        """Let each who enters hold the lock for a while; who that was, in this order."""
        order = []
        while (taking := self.inside()) is not None:
            order.append(taking)
            self.passes(hold)
            taking.ends()
            self.passes(0)
            self._awaits_the_next()
            assert not taking.is_live
        return order

    def _awaits_the_next(self) -> None:
        """Let as little time pass as it takes: a lock is passed on for a moment only."""
        for _ in range(20):
            if self.inside() is not None:
                return
            self.passes(SOON / 20)

    def is_empty(self) -> bool:
        """Whether nothing is left, in Redis or in a cohort."""
        cohorts = [cohort for process in self.processes for cohort in process.cohorts.values()]
        keys = [*map(self.server.members, KEYS[1:]), self.server.value(KEY)]
        return not any(keys) and all(cohort.is_idle() for cohort in cohorts)


@pytest.fixture
def world() -> World:
    return World()


def stranded(world: World, count: int = 2, **options: Any) -> tuple[Taking, list[Taking]]:
    """One of another process that holds the lock, and so many of one process that want it."""
    holder = world.takes(world.process(), way="queue")
    world.passes(SOON)
    return holder, world.crowd(world.process(), count, **options)


def verbs(*takings: Taking) -> list[str]:
    return [verb for taking in takings for verb in taking.process.port.verbs]


def held_with(world: World, count: int = 2, **options: Any) -> tuple[Taking, list[Taking]]:
    """One who holds the lock, and so many of the same process that want it."""
    holder, *waiters = world.crowd(world.process(), count + 1, **options)
    assert world.inside() is holder
    holder.process.port.log.clear()
    return holder, waiters


def test_waiters_enter_in_the_order_they_came_by_two_requests_in_all(world: World) -> None:
    crowd = world.crowd(world.process(), 20)

    order = world.serves()

    assert order == crowd
    assert crowd[0].process.port.verbs == ["acquire", "release"]
    assert world.is_empty()


def test_heir_has_what_the_holder_had(world: World) -> None:
    holder, (successor, _) = held_with(world)
    identifier, deadline = holder.claim.identifier, holder.claim.deadline
    world.passes(0.2)

    holder.ends()
    world.passes(0)

    assert world.inside() is successor
    assert world.server.value(KEY) == successor.claim.identifier == identifier
    assert successor.claim.deadline == deadline
    assert successor.claim.since == world.clock.now
    assert successor.claim.duration == pytest.approx(deadline - world.clock.now)
    assert successor.claim.hand_offs == 1


def test_heir_renews_when_a_third_of_what_it_was_given_is_over(world: World) -> None:
    holder, (successor, _) = held_with(world)
    world.passes(0.2)

    holder.ends()
    world.passes(0)
    port: Any = successor.process.port
    watch = TrackedLease(successor, print, successor.claim, port, Options(expire=10, max_hold=60))

    left = successor.claim.deadline - world.clock.now
    assert watch.next_check()[0] - world.clock.now == pytest.approx(left / 3, abs=0.1)
    assert watch.renewal(world.clock.now).seconds == 10


def test_one_that_passed_the_lock_on_is_over(world: World) -> None:
    holder, (successor, other) = held_with(world)
    identifier, port = holder.claim.identifier, holder.process.port

    holder.ends()
    world.passes(SOON)
    holder.ends()
    world.passes(SOON)

    assert holder.claim.state is ENDED
    assert holder.claim.identifier != identifier
    with pytest.raises(LockNotOwnedError, match="released"):
        run(extend(QueuePort(holder.process), holder.claim, 20))  # type: ignore[arg-type]
    assert port.verbs == []
    assert world.inside() is successor
    assert not other.held


@pytest.mark.parametrize(("age", "most"), [(0.0, MOST_QUICK), (0.03, MOST_HAND_OFFS)])
def test_other_processes_have_their_turn_after_so_many_passes(
    world: World, age: float, most: int
) -> None:
    crowd = world.crowd(world.process(), most + 4)
    other = world.takes(world.process(), way="queue")
    world.passes(SOON)
    crowd[0].claim.cohort.since = world.clock.now - age  # type: ignore[union-attr]

    order = world.serves()

    turns = most + 1
    assert order == [*crowd[:turns], other, *crowd[turns:]]
    assert world.is_empty()


def test_passes_are_counted_anew_for_who_took_the_lock_in_redis(world: World) -> None:
    crowd = world.crowd(world.process(), 2 * MOST_QUICK + 5)
    crowd[0].claim.cohort.since = world.clock.now  # type: ignore[union-attr]

    assert world.serves() == crowd

    assert sorted(verbs(crowd[0])) == ["acquire"] * 3 + ["release"] * 3


def test_nobody_asks_redis_while_one_of_them_holds_the_lock(world: World) -> None:
    holder, _ = held_with(world, 5)

    world.passes(9)

    assert holder.process.port.verbs == []


def test_first_leads_at_once_when_the_lock_is_let_go_in_redis(world: World) -> None:
    holder, (first, second) = held_with(world)
    holder.claim.hand_offs = MOST_QUICK

    holder.ends()
    world.passes(0.01)

    assert world.inside() is first
    assert not second.held


def test_one_that_comes_again_at_once_overtakes_nobody(world: World) -> None:
    holder, waiters = held_with(world)
    holder.claim.hand_offs = MOST_QUICK
    port: Any = QueuePort(holder.process)
    again = new_claim("a", owner=object())

    async def come_again() -> None:
        await release(port, holder.claim, "script")
        assert await acquire(port, again, PATIENCE, 0.1, "cohort") is None

    holder.process.lease_loop.start(come_again())
    world.passes(SOON)
    order = world.serves()

    assert order == waiters
    assert again.is_live(world.clock.now)
    assert again.hand_offs == 2


def test_one_leads_and_the_others_wait_for_it(world: World) -> None:
    _, crowd = stranded(world, 5)

    places = world.server.members(KEYS[1])

    assert len(places) == 1
    assert crowd[0].claim.identifier in next(iter(places))
    assert verbs(crowd[0]).count("enqueue") == 1


@pytest.mark.parametrize(("left", "is_passed"), [(0.8, True), (0.7, False)])
def test_lease_is_passed_on_while_three_tenths_of_a_grant_are_left(
    world: World, left: float, is_passed: bool
) -> None:
    holder, (successor, _) = held_with(world, expire=2.4, grant=2.4)
    identifier = holder.claim.identifier
    world.passes(holder.claim.deadline - left - world.clock.now)
    holder.claim.cohort.since = world.clock.now  # type: ignore[union-attr]

    holder.ends()
    world.passes(SOON)

    assert world.inside() is successor
    assert (successor.claim.identifier == identifier) is is_passed
    assert ("release" in verbs(holder)) is not is_passed


@pytest.mark.parametrize(("seconds", "is_passed"), [(-0.02, True), (0.02, False)])
def test_lock_is_passed_on_for_a_time_then_it_is_the_turn_of_other_processes(
    world: World, seconds: float, is_passed: bool
) -> None:
    holder, (successor, last) = held_with(world)
    came: float = holder.claim.cohort.since  # type: ignore[union-attr]
    world.passes(0.1)
    holder.ends()
    world.passes(came + MOST_SECONDS + seconds - world.clock.now)

    successor.ends()
    world.passes(SOON)

    assert world.inside() is last
    assert ("release" in verbs(successor)) is not is_passed


@pytest.mark.parametrize(("expire", "hold"), [(10, 0.03), (10, 0.4), (0.6, 0.01), (10, 2)])
def test_lock_that_was_deleted_is_passed_on_for_a_moment_then_its_loss_is_told(
    world: World, expire: float, hold: float
) -> None:
    crowd = world.crowd(world.process(), 30, expire=expire)
    other = world.process()
    world.passes(SOON)
    world.server.drop(KEY)
    deleted = world.clock.now
    elsewhere = Taking(other, "a", 0)
    world.passes(0.01)
    assert elsewhere.held

    beside = []
    while crowd[len(beside)].is_live and not crowd[0].process.lease_loop.failures:
        beside.append(crowd[len(beside)])
        world.passes(hold)
        beside[-1].ends()
        world.passes(0.002)
    told = world.clock.now

    assert [type(error) for error in crowd[0].process.lease_loop.failures] == [LockLostError]
    assert beside[-1].claim.lost_reason is not None
    assert told - deleted <= min(MOST_SECONDS, expire / 3) + hold + SOON
    assert world.server.value(KEY) == elsewhere.claim.identifier
    assert not any(taking.held for taking in crowd[len(beside) :])


def test_lock_that_word_came_of_is_passed_on_for_as_long_as_one_that_was_asked_for(
    world: World,
) -> None:
    holder, (successor, last) = stranded(world)
    world.passes(0.35)  # since the last PING that tells how old word may be

    holder.ends()
    world.passes(SOON)
    successor.ends()
    world.passes(SOON)

    assert world.inside() is last
    assert last.claim.hand_offs == 1


def lose(world: World, holder: Taking) -> None:
    world.server.drop(KEY)
    holder.claim.lost_reason = "its key is gone"


def outlive(world: World, holder: Taking) -> None:
    holder.process.lease_loop.stand_still(20)
    world.passes(20)


@pytest.mark.parametrize("harm", [lose, outlive])
def test_lease_that_is_lost_or_over_is_not_passed_on(world: World, harm: Any) -> None:
    holder, waiters = held_with(world)
    identifier = holder.claim.identifier

    harm(world, holder)
    holder.ends()
    world.passes(RECHECK + SOON)

    assert [type(error) for error in holder.process.lease_loop.failures] == [LockLostError]
    assert world.inside() is waiters[0]
    assert waiters[0].claim.identifier != identifier
    assert world.serves() == waiters


def test_lock_that_must_stand_for_a_while_is_not_passed_on(world: World) -> None:
    holder, waiters = held_with(world)
    holder.claim.held_until = world.clock.now + 1

    holder.ends()
    world.passes(0.9)
    early = world.inside()
    world.passes(0.2)

    assert early is None
    assert holder.process.port.verbs[0] == "min_hold"
    assert world.serves() == waiters


@pytest.mark.parametrize(("detail", "value"), [("fencing", True), ("replicas", 1)])
def test_locks_with_numbers_or_replicas_are_not_passed_on(
    world: World, detail: str, value: Any
) -> None:
    world.server.replicas = 1
    process, crowd = world.process(), []
    for _ in range(3):
        crowd.append(Taking(process, "a", PATIENCE, way="cohort"))
        setattr(crowd[-1].claim, detail, value)
        world.passes(SOON)
    world.takings += crowd

    order = world.serves()

    assert order == crowd
    assert len({taking.claim.identifier for taking in crowd}) == 3
    assert process.cohorts == {}
    assert process.port.verbs.count("release") == 3


def test_lock_of_a_holder_that_vanished_is_taken_when_its_lease_ends(world: World) -> None:
    _, waiters = held_with(world, expire=3)

    world.passes(2.9)
    early = [taking for taking in waiters if taking.held]
    world.passes(0.2 + RECHECK)

    assert early == []
    assert world.inside() is waiters[0]
    assert world.serves() == waiters


def test_keys_and_lengths_of_lease_have_cohorts_of_their_own(world: World) -> None:
    holder, _ = held_with(world)

    shorter = world.takes(holder.process, expire=5)
    elsewhere = world.takes(holder.process, name="b")
    world.passes(SOON)

    assert not shorter.held
    assert shorter.claim.identifier in str(world.server.members(KEYS[1]))
    assert elsewhere.held
    assert len(holder.process.cohorts) == 3


def test_idle_cohorts_do_not_pile_up() -> None:
    client_state: ClientState[None] = ClientState(redis.Redis(), None, None)  # type: ignore[arg-type]
    awaited = client_state.cohort(b"awaited", 1000)
    waiter: Any = None
    awaited.add(CohortWaiter(None, waiter))  # type: ignore[arg-type]

    for number in range(2 * MOST_COHORTS):
        client_state.cohort(b"%d" % number, 1000)

    assert len(client_state.cohorts) <= MOST_COHORTS
    assert client_state.cohort(b"awaited", 1000) is awaited


def test_leader_that_gives_up_is_followed_by_the_second(world: World) -> None:
    holder = world.takes(world.process(), way="queue")
    process = world.process()
    leader = world.takes(process, wait=0.4)
    second, third = world.crowd(process, 2)

    world.passes(0.42 - SOON)
    places = world.server.members(KEYS[1])
    holder.ends()
    world.passes(SOON)

    assert leader.refusal is not None
    assert len(places) == 1
    assert second.claim.identifier in next(iter(places))
    assert world.serves() == [second, third]
    assert world.is_empty()


def test_waiter_that_gives_up_is_passed_over(world: World) -> None:
    process = world.process()
    holder = world.takes(process)
    impatient = world.takes(process, wait=0.4)
    patient = world.takes(process)

    world.passes(0.5)

    assert impatient.at == pytest.approx(0.4, abs=0.01)
    assert impatient.claim.state is ENDED
    assert world.serves() == [holder, patient]
    assert world.is_empty()


@pytest.mark.parametrize("offset", [-0.001, -1e-6, 0.0, 1e-6, 0.001])
def test_lock_passed_in_the_moment_of_giving_up_is_held_or_passed_further(
    world: World, offset: float
) -> None:
    process = world.process()
    holder = world.takes(process)
    impatient = world.takes(process, wait=0.5)
    patient = world.takes(process)
    stop = 1000.001 + 0.5

    world.clock.at(stop + offset, holder.ends)
    world.passes(1)

    assert world.inside() is not None
    order = world.serves()
    assert order[-1] is patient
    assert (impatient in order) is (impatient.refusal is None)
    assert world.is_empty()


class Cut(Taking):
    """One that is interrupted when it is resumed for the ``number``-th time."""

    number = 0

    async def _take(self) -> None:
        await Interrupting(super()._take(), self)


class Interrupting:
    def __init__(self, work: Any, taking: Cut) -> None:
        self._work, self._taking = work, taking

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._work.__await__()
        try:
            arrange = next(steps)
            while True:
                yield arrange
                self._taking.number -= 1
                cut = self._taking.number == -1
                arrange = steps.throw(KeyboardInterrupt()) if cut else next(steps)
        except StopIteration:
            return


def cut_at(number: int) -> Any:
    return type("CutHere", (Cut,), {"number": number})


def all_but(one: Taking, takings: list[Taking]) -> list[Taking]:
    """Those that should be served: the one only if it was not interrupted."""
    return [taking for taking in takings if taking is not one or taking.error is None]


def test_leader_interrupted_at_any_point_costs_nobody_a_turn() -> None:
    for number in range(100):
        world = World()
        holder = world.takes(world.process(), way="queue")
        process = world.process()
        leader: Any = world.takes(process, kind=cut_at(number))
        others = world.crowd(process, 2)

        world.passes(0.3)
        holder.ends()
        world.passes(RECHECK + SOON)
        order = world.serves()

        assert order == all_but(leader, [leader, *others]), number
        assert world.is_empty(), number
        if leader.error is None:
            break

    assert 3 < number < 99


def test_waiter_interrupted_at_any_point_costs_nobody_a_turn() -> None:
    for number in range(100):
        world = World()
        process = world.process()
        holder = world.takes(process)
        successor: Any = world.takes(process, kind=cut_at(number))
        others = world.crowd(process, 2)

        world.passes(0.6)
        holder.ends()
        world.passes(RECHECK + SOON)
        order = world.serves()

        assert order == all_but(successor, [successor, *others]), number
        assert world.is_empty(), number
        if successor.error is None:
            break

    assert 2 < number < 99


class Twice(Cohort):
    """Interrupts one waiter when it leaves, whatever way."""

    step = "withdraw"
    one: Claim | None = None

    def withdraw(self, local: CohortWaiter) -> bool:
        self._interrupt("withdraw", local)
        return super().withdraw(local)

    def step_down(self, local: CohortWaiter, now: float) -> None:
        self._interrupt("step_down", local)
        super().step_down(local, now)

    def _interrupt(self, step: str, local: CohortWaiter) -> None:
        if step == self.step and local.claim is self.one and local.claim.state is not ENDED:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["withdraw", "step_down"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_waiter_interrupted_when_it_leaves_is_in_nobodys_way(
    world: World, step: str, place: int
) -> None:
    holder = world.takes(world.process(), way="queue")
    process = world.process()
    cohort = process.cohorts[KEY, 10_000] = Twice()
    waiters = [world.takes(process) for _ in range(4)]
    cohort.one, cohort.step = waiters[place].claim, step
    world.passes(SOON)

    process.waiters[1 + place].interrupt(KeyboardInterrupt())  # the first has a second one
    world.passes(SOON)
    holder.ends()
    world.passes(RECHECK + SOON)
    order = world.serves()

    assert isinstance(waiters[place].error, KeyboardInterrupt)
    assert order == all_but(waiters[place], waiters)
    assert world.is_empty()


def test_release_that_is_interrupted_after_passing_on_does_nothing_when_repeated(
    world: World,
) -> None:
    holder, (successor, other) = held_with(world)

    def interrupt(signal: Signal) -> None:
        raise KeyboardInterrupt

    holder.process.waiters[1].notify = interrupt  # type: ignore[method-assign]
    for _ in range(2):
        holder.ends()
        world.passes(RECHECK + SOON)

    assert [type(error) for error in holder.process.lease_loop.failures] == [KeyboardInterrupt]
    assert holder.claim.state is ENDED
    assert world.inside() is successor
    assert not other.held
    assert world.serves() == [successor, other]


def test_heir_that_wakes_when_its_lease_is_over_waits_again(world: World) -> None:
    holder, (successor, _) = held_with(world)
    other = world.takes(world.process(), expire=60, grant=60, way="queue")
    world.passes(SOON)

    holder.ends()
    world.clock.at(world.clock.now, lambda: holder.process.lease_loop.stand_still(20))
    world.passes(15)
    first = world.inside()
    world.passes(10)

    assert first is other
    assert world.inside() is other
    assert successor in world.serves()
    assert world.is_empty()


def test_late_word_to_one_that_passed_the_lock_on_does_not_let_it_go(world: World) -> None:
    holder, (late, successor) = stranded(world)
    other = world.takes(world.process(), way="queue")
    world.passes(SOON)
    late.process.lines[-1].late = 0.5
    holder.ends()
    world.passes(0.01)
    for waiter in late.process.waiters:
        waiter.notify(Signal.RETRY)  # as a look at the lock does that finds it gone
    world.passes(0.05)
    late.ends()
    world.passes(0.01)
    entered = world.inside()

    world.passes(2)

    assert entered is successor
    assert world.inside() is successor
    assert world.server.value(KEY) == successor.claim.identifier
    assert world.serves() == [successor, other]


class Racing(Cohort):
    """Something happens after the first was taken away, before it is given anything."""

    happens: Any = staticmethod(lambda successor: None)

    def pop_next(self, now: float) -> CohortWaiter | None:
        successor = super().pop_next(now)
        if successor is not None:
            self.happens(successor)
        return successor


def racing(world: World) -> tuple[Any, Claim, Racing, list[CohortWaiter]]:
    """A port, a claim that holds the lock, and two who wait in its cohort."""
    holder = world.takes(world.process())
    world.passes(SOON)
    port: Any = QueuePort(holder.process)
    cohort = holder.claim.cohort = Racing()
    cohort.holder, cohort.since = holder.claim, holder.claim.since
    waiting = [CohortWaiter(new_claim("a", owner=object()), port.wakeup()) for _ in range(2)]
    for local in waiting:
        local.claim.cohort, local.claim.cohort_waiter = cohort, local
        cohort.add(local)
    return port, holder.claim, cohort, waiting


def test_lock_is_not_passed_to_a_thread_that_gives_up_meanwhile(world: World) -> None:
    port, holder, cohort, (gone, second) = racing(world)
    identifier, left = holder.identifier, []
    cohort.happens = lambda successor: (
        left.append(cohort.withdraw(successor)) if successor is gone else None
    )

    passed = hand_off(port, holder)
    settle(second.claim)

    assert passed
    assert left == [True]
    assert gone.claim.identifier != identifier
    assert second.claim.identifier == identifier


def test_thread_that_lines_up_while_it_is_passed_the_lock_leaves_no_place(world: World) -> None:
    port, holder, cohort, (successor, second) = racing(world)
    cohort.happens = cohort.add

    passed = hand_off(port, holder)
    cohort.happens = lambda successor: None
    left = cohort.withdraw(successor)

    assert passed
    assert successor.handover is not None
    assert not left
    assert [cohort.pop_next(port.now()), cohort.pop_next(port.now())] == [second, None]


def at_line(number: int, action: Callable[[], object]) -> Callable[..., Any]:
    """A trace function that acts once, before the n-th line of cohorts, as another thread may."""
    left = iter(range(number, -1, -1))

    def trace(frame: Any, event: str, argument: object) -> Any:
        if frame.f_globals["__name__"] != hand_off.__module__:
            return None
        if event == "line" and next(left, None) == 0:
            sys.settrace(None)
            action()
        return trace

    return trace


def test_waiter_that_leaves_at_any_line_of_a_pass_has_the_lock_or_is_passed_over() -> None:
    outcomes = set()
    for number in range(60):
        world = World()
        port, holder, cohort, (first, second) = racing(world)
        identifier, left = holder.identifier, []

        def leave(cohort: Cohort = cohort, first: CohortWaiter = first, left: Any = left) -> None:
            left.append(cohort.withdraw(first))

        before = sys.gettrace()
        sys.settrace(at_line(number, leave))
        try:
            assert hand_off(port, holder)
        finally:
            sys.settrace(before)
        for local in (first, second):
            settle(local.claim)
        holders = [
            claim for claim in (holder, first.claim, second.claim) if claim.identifier == identifier
        ]

        assert holders == [second.claim if left == [True] else first.claim], number
        outcomes.add(tuple(left))

    assert outcomes == {(True,), (False,), ()}


def test_pass_that_is_interrupted_at_any_line_leaves_one_holder() -> None:
    for number in range(60):
        world = World()
        port, holder, _, waiting = racing(world)
        identifier = holder.identifier

        def fail() -> None:
            raise KeyboardInterrupt

        before = sys.gettrace()
        sys.settrace(at_line(number, fail))
        try:
            hand_off(port, holder)
        except KeyboardInterrupt:
            sys.settrace(None)
            is_passed = hand_off(port, holder)  # as leaving the block does next
            assert is_passed
        finally:
            sys.settrace(before)
        for local in waiting:
            settle(local.claim)

        assert [local.claim.identifier for local in waiting].count(identifier) == 1, number
        assert holder.identifier == "", number


# Waiters that take no steps


class Still:
    """A waiter whose thread is kept by something else, until it goes on."""

    def __init__(self, world: World, process: Waiting, **options: Any) -> None:
        self.taking = Taking(process, "a", PATIENCE, way="cohort", **options)
        self._work = process.lease_loop.works[-1]
        world.passes(SOON)

    def stops(self) -> None:
        self._work._is_over = True

    def goes_on(self) -> None:
        self._work._is_over = False
        self._work.step()


def of_owner(world: World, process: Waiting, owner: object, wait: float = PATIENCE) -> Taking:
    """One who waits on the thread of another."""
    taking = Taking(process, "a", wait, way="cohort")
    taking.claim.owner = owner
    world.passes(SOON)
    return taking


@pytest.mark.parametrize("leads", [True, False])
def test_handler_that_interrupts_a_waiter_does_not_wait_for_it(world: World, leads: bool) -> None:
    holder, process = world.takes(world.process()), world.process()
    if not leads:
        other = world.takes(process)
    still = Still(world, process)
    still.stops()
    handler = of_owner(world, process, still.taking.claim.owner)
    later = world.takes(process)
    world.passes(1)

    holder.ends()
    world.passes(2 * 2.5 + 1)
    if not leads:
        assert other.held
        other.ends()
        world.passes(0.5)

    assert handler.held
    handler.ends()
    world.passes(0.5)
    assert later.held
    later.ends()
    still.goes_on()
    world.passes(1)
    assert still.taking.held
    still.taking.ends()
    world.passes(1)
    assert world.is_empty()


@pytest.mark.parametrize("leads", [True, False])
def test_waiter_that_takes_no_steps_is_in_nobodys_way_for_long(world: World, leads: bool) -> None:
    holder, process = world.takes(world.process()), world.process()
    leader = world.takes(process, wait=1) if not leads else None
    still = Still(world, process)
    others = world.crowd(process, 2)
    still.stops()
    world.passes(2)
    assert leader is None or leader.at is not None

    holder.ends()
    world.passes(SILENCE + 2 * 2.5)
    first = others[0].held
    others[0].ends()
    world.passes(0.5)

    assert first
    assert others[1].held
    others[1].ends()
    world.passes(0.5)
    still.goes_on()
    world.passes(2)
    assert still.taking.held
    still.taking.ends()
    world.passes(1)
    assert world.is_empty()


def test_leader_that_waits_for_long_stays_the_only_one(world: World) -> None:
    holder, process = world.takes(world.process()), world.process()
    crowd = world.crowd(process, 5)
    process.port.log.clear()

    for _ in range(50):
        world.passes(1)
        holder.claim.set_term(world.clock.now, 10)
        world.server.put(KEY, holder.claim.identifier, 10)
        assert len(world.server.members(KEYS[1])) == 1

    assert "enqueue" not in process.port.verbs
    assert "acquire" not in process.port.verbs
    assert not any(taking.held for taking in crowd)


def test_heir_interrupted_once_more_while_it_lets_go_can_be_undone_again(world: World) -> None:
    holder, (successor,) = held_with(world, 1)
    holder.ends()
    world.passes(SOON)
    assert successor.held
    port: Any = successor.process.port
    port.faults = [raising(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        run(undo(port, successor.claim))
    if successor.claim.state is not ENDED:
        run(undo(port, successor.claim))

    assert successor.claim.state is ENDED
    assert world.server.value(KEY) is None


class Compared(CohortWaiter):
    """Counts how often waiters are compared with each other."""

    count = 0
    __hash__ = CohortWaiter.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return self is other


def test_to_come_and_go_takes_no_longer_where_very_many_wait() -> None:
    cohort, waiter = Cohort(), Waiting(SimulatedServer(Clock())).lease_loop
    crowd = [Compared(new_claim("a"), waiter) for _ in range(50)]  # type: ignore[arg-type]
    for _ in range(2):
        for local in crowd:
            cohort.add(local)
    first = cohort.pop_next(0)
    for local in crowd:
        cohort.withdraw(local)

    assert first is crowd[0]
    assert cohort.is_idle()
    assert Compared.count == 0


def test_of_many_only_the_first_look_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stranded(world, 50)
    looks, lead = [], Cohort.lead
    monkeypatch.setattr(Cohort, "lead", lambda *args: looks.append(1) or lead(*args))

    world.passes(8)

    assert len(looks) < 500, "each of them every quarter of a second"


def test_who_is_passed_the_lock_needs_no_identifier_of_its_own(world: World) -> None:
    holder, successor = world.crowd(world.process(), 2)
    given = holder.claim.identifier
    assert given
    assert not successor.claim.identifier, "random bytes of the system let other threads go first"
    holder.ends()
    world.passes(0)
    assert successor.claim.identifier == given
    assert successor.claim.releaser != given, "what it notes must not be taken for the other's"


def test_who_gives_up_without_having_asked_sends_nothing(world: World) -> None:
    process = world.process()
    holder, waiting = world.crowd(process, 2, wait=1)
    process.port.log.clear()
    world.passes(2)
    assert waiting.claim.state is ENDED
    assert holder.is_live
    assert process.port.log == []


@pytest.mark.parametrize("passes", [0, MOST_HAND_OFFS], ids=["passed on", "let go in Redis"])
def test_those_whom_nobody_waits_for_are_woken_when_the_lock_is_let_go(
    world: World, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their timers may be lost, so that they would sleep beside a free lock."""
    holder, waiters = held_with(world)
    holder.claim.hand_offs = passes
    woken: list[int] = []
    for number, waiter in enumerate(waiters):
        local = waiter.claim.cohort_waiter
        assert local is not None
        local.acted = -math.inf
        monkeypatch.setattr(
            local, "wakeup", SimpleNamespace(notify=lambda _, number=number: woken.append(number))
        )

    holder.ends()
    world.passes(0.01)

    assert set(woken) == {0, 1}

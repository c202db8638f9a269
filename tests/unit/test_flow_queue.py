"""Waiting in a queue, in virtual time: who enters when, by which requests, and what is left."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError
from support.faults import Request, delivered, raising, reply_lost, slow
from support.simulated_queue import QueuePort, Taking, Waiting
from support.simulation import Clock, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.queue import entries
from redis_lock_decorators._flow.queue.entry_records import EnteredClaim
from redis_lock_decorators._flow.queue.recheck import Awaited
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._rules import messages
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import LeaseBase, claim_for

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
STRANGER = "another library"


class World:
    """A server and the processes that wait there."""

    def __init__(self, cluster: bool = False) -> None:
        self.server = SimulatedServer(Clock(), cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.processes: list[Waiting] = []

    def process(self) -> Waiting:
        self.processes.append(Waiting(self.server, len(self.processes)))
        return self.processes[-1]

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def holder(self, **options: Any) -> Taking:
        """One of a process of its own that has the lock."""
        holder = self.process().takes(**options)
        self.passes(0.01)
        assert holder.held
        return holder

    def is_empty(self) -> bool:
        return not any(self.server.members(key) for key in KEYS[1:]) and not self.holds()

    def holds(self) -> str | None:
        return self.server.value(KEY)


@pytest.fixture
def world() -> World:
    return World()


def waiting(world: World, count: int = 1, **options: Any) -> list[Taking]:
    """So many processes with one waiter each, lined up in this order."""
    takings = []
    for _ in range(count):
        takings.append(world.process().takes(**options))
        world.passes(0.05)
    return takings


@pytest.mark.parametrize("method", ["script", "native", "transaction"])
def test_release_without_a_reply_that_handed_the_lock_on_is_no_loss(
    world: World, method: Any
) -> None:
    holder = world.holder()
    (first,) = waiting(world)
    holder.process.port.faults = [reply_lost]

    holder.ends()
    world.passes(0.1)

    assert first.is_live
    assert not holder.claim.is_lost(world.clock.now)
    assert holder.process.lease_loop.failures == []
    first.process.lease_loop.start(release(QueuePort(first.process), first.claim, method))  # type: ignore[arg-type]
    world.passes(0.1)
    assert world.is_empty()


def hint(taking: Taking) -> str:
    return messages.hint(taking.claim.identifier).decode()


def say(world: World, taking: Taking, word: str) -> None:
    """Publish a word to the process of a waiter, as anybody may who has the right to publish."""
    assert taking.process.subscriber is not None
    world.server.publish(taking.process.subscriber.channel, word)


def test_waiters_enter_in_the_order_they_came(world: World) -> None:
    holder = world.holder()
    first, second, third = waiting(world, 3)
    order = []

    for taking in (first, second, third):
        holder.ends()
        world.passes(0.01)
        order.append([one.held for one in (first, second, third)])
        holder = taking

    assert order == [[True, False, False], [True, True, False], [True, True, True]]


def test_after_a_hand_over_that_lapsed_nothing_is_left_for_more_than_a_minute(
    world: World,
) -> None:
    holder = world.holder()
    (first,) = waiting(world)
    holder.ends()
    world.passes(0.01)
    assert first.held
    assert world.server.members(KEYS[2])

    world.passes(first.claim.expire_ms / 1000 + 60)

    assert world.is_empty()


def test_what_is_noted_of_waiters_lasts_as_long_as_the_lock_goes_round(world: World) -> None:
    holder = world.holder()
    waiters = waiting(world, 35, wait=200.0)
    for waiter in waiters:
        world.passes(2)
        holder.ends()
        world.passes(0.01)
        assert waiter.held
        holder = waiter
        assert world.server.left(KEYS[2]) > 50


def test_waiter_enters_without_another_request(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.ends()
    world.passes(0.01)

    assert waiter.held
    assert waiter.process.port.verbs == []


def test_waiter_in_a_cluster_enters_without_another_request() -> None:
    world = World(cluster=True)
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.ends()
    world.passes(0.02)

    assert waiter.held
    assert waiter.process.port.verbs == []


def test_word_of_another_server_is_not_believed(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    place = waiter.claim.queue_entry
    other = messages.proof(b"f" * 40, waiter.claim.identifier, KEY).decode()

    say(world, waiter, f"turn|{hint(waiter)}|{other}")  # as a replica hears it, or by the bus
    world.passes(1)

    assert not waiter.held
    assert list(world.server.members(KEYS[1])) == [place]


def test_deadline_of_one_that_entered_is_not_past_its_grant(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    world.passes(3)

    holder.ends()
    world.passes(0.01)

    assert waiter.is_live
    assert waiter.claim.deadline <= world.clock.now + world.server.left(KEY)


def test_waiter_asks_once_more_when_little_of_its_grant_is_left(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.lines[-1].late = 1.9
    world.passes(3)
    waiter.process.port.log.clear()

    holder.ends()
    world.passes(2)

    assert waiter.is_live
    assert {"enter", "enqueue"} & set(waiter.process.port.verbs)
    assert waiter.claim.deadline <= world.clock.now + world.server.left(KEY)


def test_word_that_is_read_after_a_long_pause_is_not_believed(world: World) -> None:
    holder = world.holder()
    paused, other = waiting(world, 2)
    world.passes(2)

    paused.process.lease_loop.stand_still(4)
    holder.ends()
    world.passes(3.9)
    held = [paused.held, other.held]
    world.passes(0.3)

    assert held == [False, True]
    assert not (paused.is_live and other.is_live)


def test_word_that_comes_after_lining_up_again_is_not_believed(world: World) -> None:
    holder = world.holder()
    process = world.process()
    late = process.takes(expire=0.5, wait=60)
    world.passes(0.05)
    (other,) = waiting(world, expire=5)
    process.lines[-1].late = 0.8
    process.subscriber._rechecks._awaited[KEY] = Awaited(world.clock.now + 0.6, 0)

    holder.ends()
    both = []
    for _ in range(400):
        world.passes(0.01)
        both.append(late.is_live and other.is_live)

    assert not any(both)


def test_late_word_of_a_lock_that_is_held_does_not_let_it_go(world: World) -> None:
    holder = world.holder()
    late, other = waiting(world, 2)
    late.process.lines[-1].late = 0.5
    holder.ends()
    world.passes(0.01)
    late.process.waiters[-1].notify(Signal.RETRY)  # as a look at the lock does that finds it gone
    world.passes(0.05)
    entered = late.held

    world.passes(2)

    assert entered
    assert late.is_live
    assert not other.held
    assert world.holds() == late.claim.identifier


def test_time_out_leaves_nothing(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world, wait=0.5)

    world.passes(1)
    left = world.server.members(KEYS[1])
    holder.ends()
    world.passes(0.1)

    assert not waiter.held
    assert waiter.at == pytest.approx(0.51, abs=0.02)
    assert left == {}
    assert world.is_empty()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ResponseError("no")])
def test_interrupted_waiter_leaves_nothing(world: World, error: BaseException) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)

    waiter.process.waiters[-1].interrupt(error)
    world.passes(0.05)
    left = world.server.members(KEYS[1])
    holder.ends()
    world.passes(0.1)

    assert waiter.error is error
    assert left == {}
    assert world.is_empty()


def test_waiter_interrupted_when_the_lock_was_handed_to_it_hands_it_on(world: World) -> None:
    holder = world.holder()
    first, second = waiting(world, 2)
    first.process.lines[-1].late = 0.1

    holder.ends()
    world.passes(0.05)
    first.process.waiters[-1].interrupt(KeyboardInterrupt())
    world.passes(0.05)

    assert second.held
    assert world.holds() == second.claim.identifier


def test_lock_handed_to_one_that_left_is_handed_on(world: World) -> None:
    holder = world.holder()
    process = world.process()
    first = process.takes(wait=60)
    world.passes(0.05)
    gone = process.takes(wait=0.5)
    world.passes(0.02)
    copy = next(sent.command for sent in reversed(process.port.log) if sent.verb == "enqueue")
    world.passes(1)
    world.server.run(copy)
    (other,) = waiting(world)

    for taking in (holder, first):
        taking.ends()
        world.passes(0.05)

    assert not gone.held
    assert other.held


def test_place_of_one_that_took_the_lock_by_itself_costs_others_nothing(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    first = process.takes(wait=60)
    world.passes(0.05)
    second = process.takes(wait=60)
    world.passes(0.05)
    process.is_cut_off = True
    process.lines[-1].cut()
    world.passes(0.05)
    world.server.drop(KEY)
    world.passes(1)
    process.is_cut_off = False
    world.passes(2)
    holder, other = (first, second) if first.held else (second, first)

    holder.ends()
    world.passes(0.5)

    assert other.held


def test_process_that_cannot_be_told_looks_from_time_to_time(world: World) -> None:
    holder = world.holder()
    deaf = world.process()
    deaf.port.faults = [None, raising(NoPermissionError("no PUBLISH"))]
    waiter = deaf.takes()
    world.passes(1)

    holder.ends()
    world.passes(0.5)

    assert waiter.held
    assert set(deaf.port.verbs) == {"acquire", "PUBLISH"}


def test_waiter_whose_line_was_cut_keeps_its_place(world: World) -> None:
    holder = world.holder()
    first, second = waiting(world, 2)
    before = world.server.members(KEYS[1])

    first.process.lines[-1].cut()
    world.passes(0.2)
    after = world.server.members(KEYS[1])
    holder.ends()
    world.passes(0.05)

    assert sorted(after.values()) == sorted(before.values())
    assert len(set(before) & set(after)) == 1
    assert len(first.process.lines) == 2
    assert [first.held, second.held] == [True, False]


def test_waiter_looks_by_itself_while_its_line_cannot_be_made_anew(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)

    waiter.process.is_cut_off = True
    waiter.process.lines[-1].cut()
    world.passes(0.5)
    holder.ends()
    world.passes(1)

    assert waiter.held


def test_lock_that_is_lost_while_its_place_is_cleared_leaves_no_place(world: World) -> None:
    holder = world.holder()
    (waiter,) = waiting(world)
    port = waiter.process.port

    def lost(request: Request) -> Any:
        if port.verbs[-1] == "enter":
            world.server.put(KEY, STRANGER, 60)
        return delivered(request)

    waiter.process.is_cut_off = True
    waiter.process.lines[-1].cut()
    world.passes(0.5)
    port.usual = lost
    holder.ends()
    world.passes(1)

    assert port.verbs[-3:] == ["acquire", "enter", "cancel"]
    assert port.untidy == []
    assert world.server.members(KEYS[1]) == {}


def test_line_that_is_cut_when_it_is_tried_out_does_not_end_listening(world: World) -> None:
    holder = world.holder()
    process = world.process()

    def cut(request: Request) -> Any:
        process.lines[-1].cut()
        return delivered(request)

    process.port.faults = [None, cut]
    waiter = process.takes()
    world.passes(1)
    process.port.log.clear()

    holder.ends()
    world.passes(0.01)

    assert waiter.held
    assert process.port.verbs == []


def test_waiter_that_fell_out_of_the_queue_comes_back_to_its_place(world: World) -> None:
    holder = world.holder(expire=60)
    first, _ = waiting(world, 2, wait=60)
    world.server.run(("HDEL", KEYS[1], first.claim.queue_entry))

    world.passes(3)
    tickets = sorted(world.server.members(KEYS[1]).values())
    holder.ends()
    world.passes(0.01)

    assert tickets == [1, 2]
    assert first.held


def test_half_open_line_is_given_up(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world)

    waiter.process.lines[-1].is_silent = True
    world.passes(4)

    assert len(waiter.process.lines) == 2


def test_lock_of_a_dead_process_goes_to_the_next_when_its_lease_ends(world: World) -> None:
    world.holder(expire=3)
    (waiter,) = waiting(world)

    world.passes(3.1)

    assert waiter.held
    assert waiter.at == pytest.approx(3.0, abs=0.05)


def test_dead_waiters_are_passed_over(world: World) -> None:
    holder = world.holder()
    dead, living = waiting(world, 2)
    dead.process.lease_loop.stand_still(1000)
    dead.process.lines[-1].cut()

    holder.ends()
    world.passes(0.01)

    assert living.held


def test_paused_process_costs_the_others_one_grant(world: World) -> None:
    holder = world.holder(expire=60)
    paused = world.process()
    stuck = [paused.takes(wait=60) for _ in range(3)]
    world.passes(0.05)
    (other,) = waiting(world, wait=60)
    paused.lease_loop.stand_still(30)

    holder.ends()
    world.passes(2.7)

    assert not any(one.held for one in stuck)
    assert other.held


def test_holder_that_tells_nobody_is_looked_at_more_and_more_rarely(world: World) -> None:
    world.server.put(KEY, STRANGER, 60)
    (waiter,) = waiting(world, wait=60)

    world.passes(5)
    looks = [sent.at for sent in waiter.process.port.log if sent.verb == "recheck"]
    gaps = [later - former for former, later in pairwise(looks)]

    assert looks[0] - 1000 < 0.06
    assert gaps[0] == pytest.approx(0.05, abs=0.01)
    assert gaps[-1] == pytest.approx(0.25, abs=0.01)


def test_lock_that_a_stranger_deleted_is_taken_soon(world: World) -> None:
    world.server.put(KEY, STRANGER, 60)
    (waiter,) = waiting(world, wait=60)
    world.passes(5)

    world.server.drop(KEY)
    world.passes(0.3)

    assert waiter.held


@pytest.mark.parametrize("wait", [0.3, 1.0, 2.5])
def test_waiter_stops_in_time_though_the_server_is_slow(world: World, wait: float) -> None:
    world.holder(expire=60)
    process = world.process()
    waiter = process.takes(wait=wait)
    world.passes(0.1)

    process.port.usual = slow(0.2)
    world.passes(5)

    assert not waiter.held
    assert waiter.at == pytest.approx(0.01 + wait, abs=0.5)
    assert waiter.claim.identifier not in str(world.server.members(KEYS[1]))


# Words on the channel, which anybody may say who has the right to publish


def holders(world: World, *takings: Taking) -> int:
    return sum(taking.is_live for taking in takings)


@pytest.mark.parametrize("forged", ["turn|{hint}|", "turn|{hint}|" + 40 * "0", "again|{hint}"])
def test_forged_word_does_not_let_a_waiter_in(world: World, forged: str) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)

    for _ in range(50):
        say(world, waiter, forged.format(hint=hint(waiter)))
        world.passes(0.001)
    requests = len(waiter.process.port.verbs)
    world.passes(0.1)
    early = waiter.held
    holder.ends()
    world.passes(0.02)

    assert not early
    assert requests < 60
    assert waiter.is_live


def test_word_that_was_heard_is_of_no_use_again_or_elsewhere(world: World) -> None:
    heard: list[tuple[str, str]] = []
    world.server.spies.append(lambda channel, word: heard.append((channel, word)))
    holder = world.holder(expire=60)
    first, second = waiting(world, 2, wait=60)
    holder.ends()
    world.passes(0.05)
    words_of_first = [word for _, word in heard if word.startswith("turn")]

    for taking in (first, second):
        for word in words_of_first:
            say(world, taking, word)
    world.passes(1)

    assert first.is_live
    assert not second.held
    assert world.holds() == first.claim.identifier
    assert first.claim.identifier not in str(heard)
    assert KEY.decode() not in str(heard)


@pytest.mark.parametrize("word", ["turn|active|session", "turn|active|", "again|active|session"])
def test_word_for_a_place_that_is_not_known_does_nothing(world: World, word: str) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.server.put(b"session", "active")
    waiter.process.port.log.clear()

    say(world, waiter, word)
    world.passes(0.2)

    assert world.server.value(b"session") == "active"
    assert waiter.process.port.verbs == []


@pytest.mark.parametrize("data", [b"turn|\xff|y", b"", b"|||", b"turn", b"again|\xff", b"a|b|c|d"])
def test_odd_message_does_not_deafen(world: World, data: bytes) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process

    say(world, waiter, data)  # type: ignore[arg-type]
    world.passes(0.5)
    process.port.log.clear()
    holder.ends()
    world.passes(0.01)

    assert waiter.held
    assert len(process.lines) == 1
    assert process.port.verbs == []


def test_where_info_is_forbidden_every_turn_is_asked_about(world: World) -> None:
    world.server.run_id = None
    holder = world.holder()
    (waiter,) = waiting(world)
    waiter.process.port.log.clear()

    holder.ends()
    world.passes(0.02)

    assert waiter.is_live
    assert waiter.process.port.verbs == ["enter"]


def test_deaf_waiter_polls_by_an_identifier_that_no_late_request_knows(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process
    placed = waiter.claim.identifier
    assert process.subscriber is not None

    process.subscriber._on_failure(NoPermissionError("no"))
    world.passes(0.1)
    copy = next(sent.command for sent in process.port.log if sent.verb == "cancel")
    world.server.drop(KEY)
    world.passes(1)
    held = world.holds()
    world.server.run(copy)

    assert waiter.is_live
    assert waiter.claim.identifier != placed
    assert world.holds() == held == waiter.claim.identifier


def test_waiter_that_moves_takes_a_new_identifier_and_leaves_no_place(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process, before = waiter.process, waiter.claim.identifier
    old = process.subscriber
    assert old is not None

    process.subscriber = None  # as when a slot has moved
    process.waiters[-1].notify(Signal.RETRY)
    world.passes(0.1)
    entries = world.server.members(KEYS[1])
    world.server.publish(old.channel, f"turn|{messages.hint(before).decode()}|")
    world.passes(0.1)
    holder.ends()
    world.passes(0.1)

    assert waiter.claim.identifier != before
    assert list(entries) != []
    assert before not in str(entries)
    assert len(entries) == 1
    assert waiter.is_live


def test_late_word_for_a_place_that_was_left_takes_nothing_from_who_left_it(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process, before = waiter.process, waiter.claim.identifier
    copy = next(sent.command for sent in process.port.log if sent.verb == "enqueue")
    process.waiters[-1].notify(Signal.RETRY)
    world.passes(0.1)
    world.server.run(copy)  # it stands in the queue once more, by the identifier that was left

    holder.ends()
    world.passes(0.2)
    entered = waiter.is_live
    world.passes(2)

    assert entered
    assert world.holds() == waiter.claim.identifier != before


# Who looks, and when


@pytest.mark.parametrize("expire", [20, 60])
def test_waiter_whose_lease_is_not_renewed_looks_as_often_as_others(
    world: World, expire: float
) -> None:
    world.holder(expire=expire)
    (waiter,) = waiting(world, wait=100, expire=expire, grant=expire, renews=False)

    world.server.drop(KEY)
    world.passes(2.6)

    assert waiter.held


@pytest.mark.parametrize("pause", [0.1, 0.03, 0.007])
def test_newcomers_do_not_put_off_the_look_for_one_that_fell_out(
    world: World, pause: float
) -> None:
    world.holder(expire=60)
    process = world.process()
    first = process.takes(wait=60)
    world.passes(0.05)
    world.server.drop(KEYS[1])

    for _ in range(round(4 / pause)):
        process.takes(wait=0.3)
        world.passes(pause)

    assert first.claim.identifier in str(world.server.members(KEYS[1]))


def test_lock_that_is_awaited_while_others_are_looked_at_is_looked_at(world: World) -> None:
    world.holder(name="z", expire=500)
    process = world.process()
    process.takes(name="z", wait=100)
    world.passes(1)
    subscriber = process.subscriber
    assert subscriber is not None
    waiting, key = subscriber._entries.waiting, b"sys:lock:other"

    def racing(looked_at: bytes) -> Any:
        """What another thread does while the event loop finds out who waits."""
        found = waiting(looked_at)
        subscriber._entries.waiting = waiting  # type: ignore[method-assign]
        turn = QueuedWaiter(key, "0" * 32 + "~", QueuePort(process).wakeup())
        turn.queue_entry, turn.is_queued = "x", True
        subscriber.join(turn)
        subscriber.schedule_recheck(key, Refusal("f" * 32 + "~", 1.0), 2.5)
        return found

    subscriber._entries.waiting = racing  # type: ignore[method-assign]
    world.passes(5)

    looks = [sent for sent in process.port.log if sent.verb == "recheck" and sent.command[3] == key]
    assert len(looks) >= 2


def test_look_at_one_lock_does_not_go_through_all_who_wait(world: World) -> None:
    world.holder(name="z", expire=500)
    process = world.process()
    process.takes(name="z", wait=100)
    world.passes(1)
    subscriber = process.subscriber
    assert subscriber is not None
    process.port.log.clear()
    subscriber._entries.waiters = None  # type: ignore[assignment, method-assign]

    world.passes(5)

    assert [sent.verb for sent in process.port.log] == ["recheck"] * 2


def test_nothing_is_kept_of_places_that_were_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "SPARE", 10)
    known, stays = entries.QueueEntries(), QueuedWaiter(b"a", "stays", None)  # type: ignore[arg-type]
    known.join(stays)
    for number in range(100):
        turn = QueuedWaiter(b"%d" % number, str(number), None)  # type: ignore[arg-type]
        known.join(turn)
        known.leave(turn)
        assert known.waiting(b"a") == [stays]

    assert len(known._by_key) + len(known._joined) <= 15


@pytest.mark.parametrize("enters", [False, True])
def test_nothing_is_kept_of_places_that_were_left_where_nobody_looks(enters: bool) -> None:
    known, stays = entries.QueueEntries(), QueuedWaiter(b"a", "stays", None)  # type: ignore[arg-type]
    known.join(stays)
    for number in range(100):
        claim = new_claim(str(number))
        turn = QueuedWaiter(claim.keys[0], claim.identifier, None)  # type: ignore[arg-type]
        known.join(turn)
        if enters:
            known.enter(EnteredClaim(claim, claim.identifier, "", math.inf))
        known.leave(turn)

    assert len(known._waiters) + len(known._by_key) + len(known._joined) <= 2
    assert known.waiting(b"a") == [stays]


# Grants


@pytest.mark.parametrize("renews", [False, True])
def test_paused_waiter_costs_one_grant_whatever_its_lease(world: World, renews: bool) -> None:
    holder = world.holder(expire=60)
    paused, other = waiting(world, 2, wait=60, expire=60, renews=renews)
    paused.process.lease_loop.stand_still(100)

    holder.ends()
    world.passes(2.7)

    assert other.held


def test_waiter_that_is_not_renewed_has_its_whole_lease(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60, expire=20, renews=False)
    waiter.process.port.log.clear()

    holder.ends()
    world.passes(0.02)

    assert waiter.process.port.verbs == ["enter"]
    assert waiter.claim.deadline - world.clock.now == pytest.approx(19.8, abs=0.1)
    assert world.server.left(KEY) == pytest.approx(20, abs=0.1)


def test_dead_waiters_are_passed_over_though_somebody_listens_to_a_pattern(world: World) -> None:
    world.server.spies.append(lambda channel, word: None)
    holder = world.holder()
    dead, living = waiting(world, 2)
    dead.process.lease_loop.stand_still(1000)
    dead.process.lines[-1].cut()

    holder.ends()
    world.passes(0.01)

    assert living.held


def test_listener_that_only_a_pattern_hears_is_deaf(world: World) -> None:
    world.server.spies.append(lambda channel, word: None)
    holder = world.holder()
    process = world.process()
    process.port.usual = lambda request: (
        [b"", 0] if process.port.verbs[-1] == "PUBSUB" else delivered(request)
    )
    waiter = process.takes()
    world.passes(1)

    holder.ends()
    world.passes(0.5)

    assert waiter.held
    assert set(process.port.verbs) == {"acquire", "PUBLISH", "PUBSUB"}


# Suspects


@pytest.mark.parametrize("expire", [0.03, 0.3, 2.0])
def test_leases_that_are_left_to_end_do_not_send_others_back(world: World, expire: float) -> None:
    process = world.process()
    takings = []
    for _ in range(20):
        takings.append(process.takes(wait=100, expire=expire, renews=False))
        world.passes(0.002)
    process.port.log.clear()

    world.passes(expire * 25 + 1)

    entered = [taking.at for taking in takings]
    assert all(taking.held for taking in takings)
    assert entered == sorted(entered)  # type: ignore[type-var]
    assert process.port.verbs.count("enqueue") <= 2


def test_holder_whose_lease_ends_while_it_works_is_no_suspect(world: World) -> None:
    holder = world.holder(expire=60)
    process = world.process()
    first, second = process.takes(wait=60), process.takes(wait=60)
    world.passes(0.1)
    holder.ends()
    world.passes(2)
    noted = process.port.verbs.count("enter")
    process.port.log.clear()
    world.passes(0.7)

    assert first.held
    assert second.held
    assert noted == 1
    assert "enqueue" not in process.port.verbs


# A listener ends once


def test_waiter_that_joins_a_listener_that_has_ended_goes_to_another(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    process.takes(wait=0.2)
    world.passes(0.1)
    ended = process.subscriber
    assert ended is not None
    world.passes(3)
    assert process.subscriber is None

    turn = QueuedWaiter(KEY, "0" * 32 + "~", QueuePort(process).wakeup())
    ended.join(turn)
    world.passes(1)

    assert world.server.hearers[ended.channel] == []
    assert list(process.waiters[-1]._news)[:1] == [Signal.RETRY]


def test_end_of_a_listener_takes_no_other_out_of_the_table(world: World) -> None:
    lease_loop: Any = world.process().lease_loop
    client_state: ClientState[Any] = ClientState(object_with_execute(), None, lease_loop)
    port: Any = world.process().port
    port.client = object_with_execute()
    first = client_state.subscriber(port, KEY)
    first._end(first)
    second = client_state.subscriber(port, KEY)

    first._end(first)

    assert client_state.subscriber(port, KEY) is second


def object_with_execute() -> Any:
    class Client:
        def execute_command(self) -> None: ...

    return Client()


def test_listener_of_a_server_that_is_not_asked_any_more_goes_where_the_lock_is(
    world: World,
) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    process = waiter.process
    world.server.hearers.clear()  # it hears another server, a former master for example

    world.passes(6)
    lines = len(process.lines)
    holder.ends()
    world.passes(0.05)

    assert lines > 1
    assert waiter.held


# Locks that rest


def test_waiter_is_told_when_a_lock_rests_and_looks_when_that_is_over(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.passes(0.5)
    holder.claim.held_until = world.clock.now + 0.4
    rested = world.clock.now + 0.4 - 1000

    holder.ends()
    world.passes(1)

    assert waiter.at == pytest.approx(rested, abs=0.05)


def test_least_time_counts_from_the_entry(world: World) -> None:
    holder = world.holder(expire=60)
    (waiter,) = waiting(world, wait=60)
    world.passes(0.39)

    holder.ends()
    world.passes(0.05)

    assert waiter.at is not None
    assert waiter.claim.entered == pytest.approx(1000 + waiter.at, abs=0.001)
    assert waiter.claim.since < waiter.claim.entered


def test_least_time_of_a_lease_counts_from_the_entry() -> None:
    claim = new_claim("a")
    claim.since, claim.entered = 1000.0, 1000.4

    LeaseBase(claim, Options(min_hold=3))._apply_min_hold()

    assert claim.held_until == pytest.approx(1003.4)


@pytest.mark.parametrize("auto_renew", [False, True])
def test_grant_is_short_whatever_the_lease(auto_renew: bool) -> None:
    options = Options(expire=60, auto_renew=auto_renew)
    claim = claim_for(("a",), options, None)
    other = claim_on(KEY, 60)  # as a drop-in has

    assert claim.grant_ms == other.grant_ms == 2500
    assert claim.renews is auto_renew
    assert not other.renews


def test_listener_that_nobody_needs_any_more_does_next_to_nothing(world: World) -> None:
    world.holder(expire=60)
    process = world.process()
    process.takes(wait=0.2)
    world.passes(0.1)
    subscriber = process.subscriber
    assert subscriber is not None
    ticks, due = [], subscriber._rechecks.due
    subscriber._rechecks.due = lambda now, keys: [ticks.append(now), *due(now, keys)][1:]  # type: ignore[method-assign,func-returns-value]

    world.passes(3)

    assert process.subscriber is None
    assert len(ticks) < 6


def test_lock_handed_to_a_place_that_was_given_up_in_vain_is_handed_on(world: World) -> None:
    holder = world.holder(expire=60)
    first, second = waiting(world, 2, wait=60)
    port = first.process.port
    first.process.lines[-1].late = 30
    holder.ends()
    world.passes(0.01)
    refused = raising(ResponseError("no"))

    port.usual = lambda request: (
        refused(request) if port.verbs[-1] == "enqueue" else delivered(request)
    )
    first.process.waiters[-1].notify(Signal.RETRY)
    world.passes(0.1)

    assert isinstance(first.error, ResponseError)
    assert second.held


@pytest.mark.parametrize("verbs", [("enqueue",), ("enqueue", "cancel")])
def test_who_may_not_use_the_queue_looks_for_the_lock(world: World, verbs: tuple[str, ...]) -> None:
    holder = world.holder(expire=60)
    process = world.process()
    refused = raising(NoPermissionError("no"))
    process.port.usual = lambda request: (
        refused(request) if process.port.verbs[-1] in verbs else delivered(request)
    )
    waiter = process.takes(wait=60)
    world.passes(3)
    assert waiter.error is None

    holder.ends()
    world.passes(3)

    assert waiter.is_live


def test_waiter_of_short_leases_looks_as_often_as_these_end(world: World) -> None:
    world.holder(expire=60)
    (waiter,) = waiting(world, wait=60, expire=1)

    world.server.drop(KEYS[1])
    world.passes(1.1)

    assert waiter.claim.identifier in str(world.server.members(KEYS[1]))

"""Letting a lock go: only what is ours, told truly, by every method."""

import contextlib
import logging
import math
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError, ResponseError
from support.faults import (
    Request,
    delivered,
    interrupted,
    mismatched,
    raising,
    refused,
    reply_lost,
    request_lost,
    resent,
    swallowed,
    unsent,
)
from support.simulation import Clock, SimulatedPort, SimulatedServer, taken

from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release, release_keys
from redis_lock_decorators._flow.retries import OUTAGE, ROUND_TRIP
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import slot_of, with_notes, with_queue
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, LockLostError, LockNotOwnedError

KEY = b"sys:lock:a"
#: Keys of two slots, in the order in which everybody takes them.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)


class Limit(Exception):
    """What a signal handler of a program raises, such as a time limit for its work."""


METHODS: tuple[ReleaseMethod, ...] = ("script", "transaction", "native")
every_method = pytest.mark.parametrize("method", METHODS)


def new_port(**options: Any) -> SimulatedPort:
    return SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ", "DELEX"]), **options)


def cluster_port() -> SimulatedPort:
    return SimulatedPort(SimulatedServer(Clock(), cluster=True))


# What is found


@every_method
def test_held_lock_is_deleted(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize(
    ("method", "verbs"),
    [
        ("script", ["release"]),
        ("transaction", ["WATCH", "EXEC"]),
        ("native", ["DELIFEQ", "EXISTS"]),  # together, in one trip
    ],
)
def test_release_sends_no_more_than_its_method_needs(
    method: ReleaseMethod, verbs: list[str]
) -> None:
    port = new_port()
    claim = taken(port, "a")

    run(release(port, claim, method))

    assert port.verbs == verbs


@every_method
def test_key_that_is_gone_means_lost(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone") as caught:
        run(release(port, claim, method))

    assert caught.value.holder is None
    assert claim.is_lost(port.now())
    assert port.held == {}


@every_method
def test_key_of_another_means_lost_and_stays(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.put(KEY, "another-identifier", 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, method))

    assert caught.value.holder == "another-…"
    assert port.server.value(KEY) == "another-identifier"
    assert port.server.deleted == []


@every_method
def test_key_that_outlived_its_deadline_is_deleted_without_complaint(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a", expire=10)
    port.clock.advance(9.95)

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
def test_client_that_decodes_replies_can_release(method: ReleaseMethod) -> None:
    port = new_port(text=True)
    claim = taken(port, "a")

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
def test_second_release_has_nothing_to_do(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    run(release(port, claim, method))
    port.server.put(KEY, "another", 60)
    port.log.clear()

    run(release(port, claim, method))

    assert port.log == []


@every_method
def test_forked_child_releases_nothing(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError, match="parent process"):
        run(release(port, claim, method))

    assert port.log == []
    assert port.server.value(KEY) == claim.identifier


def test_scripts_forgotten_by_the_server_are_sent_again() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.loaded.clear()

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


# Requests that fail


@every_method
@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_lost_message_is_made_up_for(method: ReleaseMethod, fate: Any) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [fate] if method != "transaction" else [None, fate]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


@every_method
def test_delete_that_the_client_sent_twice_is_our_own(method: ReleaseMethod) -> None:
    port = new_port(may_resend=True)
    claim = taken(port, "a")
    port.faults = [resent] if method != "transaction" else [None, reply_lost]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
@pytest.mark.parametrize("may_resend", [False, True])
@pytest.mark.parametrize("is_run", [False, True])
def test_lock_of_another_after_a_release_without_a_reply_may_have_been_lost(
    method: ReleaseMethod, may_resend: bool, is_run: bool
) -> None:
    def no_reply_and_lock_taken(request: Request) -> Any:
        if is_run:
            request.execute()
        port.server.put(KEY, "another", 60)
        return request_lost(request)

    port = new_port(may_resend=may_resend)
    claim = taken(port, "a")
    fate = no_reply_and_lock_taken
    port.faults = [fate] if method != "transaction" else [None, fate]

    is_known = may_resend and is_run and method != "transaction"  # by script, which left a note
    if is_known:
        run(release(port, claim, method))
    else:
        with pytest.raises(LockLostError, match="whether it was released before is not known"):
            run(release(port, claim, method))

    assert port.server.value(KEY) == "another"
    assert claim.is_lost(port.now()) is not is_known


# Requests that were not sent


@every_method
@pytest.mark.parametrize("fate", [refused, unsent])
@pytest.mark.parametrize("holder", [None, "another"])
def test_request_that_did_not_leave_is_no_excuse_for_a_lost_key(
    method: ReleaseMethod, fate: Any, holder: str | None
) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    if holder is None:
        port.server.drop(KEY)
    else:
        port.server.put(KEY, holder, 60)
    port.faults = [fate, fate]

    with pytest.raises(LockLostError):
        run(release(port, claim, method))

    assert claim.is_lost(port.now())
    assert port.server.value(KEY) == holder


@every_method
def test_releases_called_again_count_only_what_left(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.usual = refused
    for _ in range(2):
        with pytest.raises(Disconnected, match="refused"):
            run(release(port, claim, method))
    port.usual = delivered
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


@every_method
def test_one_request_that_left_is_an_excuse_whatever_came_after_it(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    fates: list[Any] = [reply_lost, refused, refused]
    port.faults = fates if method != "transaction" else [None, *fates]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


def test_unknown_outcome_is_told_rather_than_a_connection_that_was_refused() -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.faults, port.usual = [request_lost], refused

    with pytest.raises(Disconnected, match="the request was lost"):
        run(release(port, claim, "script"))


def test_release_that_was_refused_is_no_excuse_for_the_next_one() -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.usual = raising(NoPermissionError("this user has no permissions"))
    with pytest.raises(NoPermissionError):
        run(release(port, claim, "script"))
    port.usual = delivered
    port.server.drop(KEY)

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


def test_server_that_lost_the_script_is_not_the_one_that_ran_the_release() -> None:
    def restarted(request: Request) -> Any:
        port.server.flush()
        port.server.loaded.clear()
        return request_lost(request)

    port = new_port()
    claim = taken(port, "a")
    port.faults = [restarted]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@every_method
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
@pytest.mark.parametrize("is_taken", [False, True])
def test_client_that_repeats_by_itself_tells_of_a_key_that_others_deleted(
    method: ReleaseMethod, names: list[str], is_taken: bool
) -> None:
    port = new_port(may_resend=True)
    claim = taken(port, *names)
    port.server.drop(KEY)
    if is_taken:
        other = SimulatedPort(port.server)
        run(release(other, taken(other, "a"), "script"))

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))


def test_several_slots_of_a_client_that_repeats_by_itself_are_told_one_by_one() -> None:
    port = cluster_port()
    port.may_resend = True
    port.usual = resent
    claim = taken(port, "a", "b")

    run(release(port, claim, "script"))

    port.usual = delivered
    claim = taken(port, "a", "b")
    port.server.drop(SECOND)
    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@pytest.mark.parametrize("seconds", [0.5, 2])
def test_lock_that_stood_for_a_while_is_known_to_be_let_go_by_ourselves(seconds: float) -> None:
    def again_when_it_is_over(request: Request) -> Any:
        request.execute()
        port.clock.advance(2 * seconds)
        return delivered(request)

    port = new_port(may_resend=True)
    claim = taken(port, "a")
    claim.held_until = port.now() + seconds
    port.faults = [again_when_it_is_over]

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


def test_note_of_who_let_go_ends_by_itself_and_is_left_by_no_other_client() -> None:
    port, plain = new_port(may_resend=True), new_port()
    for one in (port, plain):
        run(release(one, taken(one, "a"), "script"))

    *_, released = with_notes((KEY,))
    assert 0 < port.server.left(released) <= 30
    assert plain.server.left(released) == 0


@every_method
def test_reply_to_another_command_is_no_sign_of_a_loss(method: ReleaseMethod) -> None:
    port = new_port(may_resend=True)
    claim = taken(port, "a")
    port.faults = [mismatched(b"OK")]

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("method", ["transaction", "native"])
def test_key_that_is_gone_is_not_told_lost_where_that_cannot_be_known(method: Any) -> None:
    def without_scripts(request: Request) -> Any:
        if request.command[0].startswith("EVAL"):
            return raising(NoPermissionError("this user has no permissions"))(request)
        return delivered(request)

    port = new_port(may_resend=True)
    claim = taken(port, "a")
    port.server.drop(KEY)
    port.usual = without_scripts

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


def test_part_that_was_let_go_is_not_taken_for_lost_when_another_is_asked_again() -> None:
    port = cluster_port()
    claim = taken(port, "a", "b")
    port.faults = [None, refused]

    run(release(port, claim, "script"))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None
    assert port.verbs == ["release"] * 3


@pytest.mark.parametrize("method", ["script", "native"])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_part_that_was_not_asked_for_is_told_lost(method: ReleaseMethod, lost: bytes) -> None:
    def cut_off_from_the_other(request: Request) -> Any:
        if lost in request.command[:5] or request.command[0] == "EXISTS":
            return delivered(request)
        port.usual = delivered
        return reply_lost(request)

    port = SimulatedPort(SimulatedServer(Clock(), cluster=True, natives=["DELIFEQ"]))
    claim = taken(port, "a", "b")
    port.server.drop(lost)
    port.usual = cut_off_from_the_other

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("failed", [False, True])
def test_block_whose_server_was_restarted_tells_so_at_its_end(failed: bool) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.flush()
    port.faults = [refused]

    if failed:
        run(leave(port, claim, "script", failed))
    else:
        with pytest.raises(LockLostError):
            run(leave(port, claim, "script", failed))
    assert claim.is_lost(port.now())


# Waiters whose lock is deleted by a request without an answer


@pytest.mark.parametrize("method", ["transaction", "native"])
@pytest.mark.parametrize("may_resend", [False, True])
def test_deletion_without_a_reply_is_made_up_for_to_those_who_wait(
    method: ReleaseMethod, may_resend: bool
) -> None:
    port = new_port(may_resend=may_resend)
    claim = taken(port, "a", expire=60)
    fate = resent if may_resend and method == "native" else reply_lost
    port.faults = [fate] if method == "native" else [None, fate]

    run(release(port, claim, method))

    by_script = may_resend and method == "native"  # which hands it on
    assert port.verbs[-1] == ("release" if by_script else "recheck")
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("method", ["transaction", "native"])
@pytest.mark.parametrize("fate", [reply_lost, request_lost, refused])
@pytest.mark.parametrize("times", [1, 3])
def test_waiters_are_told_of_a_deleted_lock_though_that_is_cut_at_first(
    method: ReleaseMethod, fate: Any, times: int
) -> None:
    def with_waiters(request: Request) -> Any:
        port.faults = [fate] * times
        return delivered(request)

    port = new_port()
    claim = taken(port, "a", expire=60)
    queue = with_queue((KEY,))[1]
    place = f"a-channel|{claim.identifier}x|2500"
    port.server._stored[queue] = ({place: 1}, math.inf)
    port.server.hearers["a-channel"] = [lambda word: None]
    port.faults = [with_waiters] if method == "native" else [None, with_waiters]

    run(release(port, claim, method))

    assert port.verbs.count("recheck") == times + 1
    assert port.server.value(KEY) == f"{claim.identifier}x"
    assert port.now() < 1000 + ROUND_TRIP


@pytest.mark.parametrize("method", ["transaction", "native"])
def test_waiters_of_a_server_that_is_gone_keep_nobody_who_let_go(method: ReleaseMethod) -> None:
    def with_waiters(request: Request) -> Any:
        port.usual = refused
        return delivered(request)

    port = new_port()
    claim = taken(port, "a", expire=60)
    port.server._stored[with_queue((KEY,))[1]] = ({f"x|{claim.identifier}x|2500": 1}, math.inf)
    port.faults = [with_waiters] if method == "native" else [None, with_waiters]

    run(release(port, claim, method))

    assert port.now() < 1000 + ROUND_TRIP + 0.1


def test_transaction_that_left_the_lock_standing_is_done_once() -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    claim.held_until = port.now() + 5
    port.faults = [None, reply_lost]

    run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == f"{claim.identifier}:rest"
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("may_resend", [False, True])
def test_waiters_are_told_of_a_rest_though_the_reply_to_its_transaction_is_lost(
    may_resend: bool,
) -> None:
    heard: list[str] = []
    port = new_port(may_resend=may_resend)
    claim = taken(port, "a", expire=60)
    claim.held_until = port.now() + 5
    port.server._stored[with_queue((KEY,))[1]] = ({"a-channel|waiter|2500": 1}, math.inf)
    port.server.hearers["a-channel"] = [heard.append]
    port.faults = [None, reply_lost]

    run(release(port, claim, "transaction"))

    assert [word.partition("|")[0] for word in heard] == ["again"]
    assert port.server.value(KEY) == f"{claim.identifier}:rest"


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
@pytest.mark.parametrize("method", ["script", "transaction"])
def test_lock_that_was_left_standing_for_longer_than_it_had_to_is_not_lost(
    method: ReleaseMethod, names: list[str]
) -> None:
    def slow(request: Request) -> Any:
        port.clock.advance(3)  # the server counts the rest from here
        return reply_lost(request)

    port = new_port() if method == "transaction" else cluster_port()
    claim = taken(port, *names, expire=60)
    claim.held_until = port.now() + 2
    port.faults = [slow] if method == "script" else [None, slow]

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


def test_key_gone_at_a_repeated_release_after_the_deadline_means_lost() -> None:
    port = new_port()
    claim = taken(port, "a", expire=1)
    port.clock.advance(1.5)
    port.faults = [request_lost]

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))


@every_method
def test_outage_raises_the_clients_own_error_and_ends_nothing(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.usual = request_lost

    with pytest.raises(Disconnected, match="the request was lost"):
        run(release(port, claim, method))

    assert OUTAGE - 1 < port.now() - 1000 < OUTAGE + 0.1
    assert claim.state is not ENDED


def test_release_is_not_tried_beyond_the_deadline() -> None:
    port = new_port()
    claim = taken(port, "a", expire=2)
    port.usual = request_lost

    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))

    assert port.now() < claim.deadline + 0.1


@pytest.mark.parametrize("expire", [2, 600])
def test_black_hole_ends_the_release_in_time(expire: float) -> None:
    port = new_port()
    claim = taken(port, "a", expire=expire)
    port.usual, port.patience = swallowed, 1e9

    with pytest.raises(Exception, match="no reply in time"):
        run(release(port, claim, "script"))

    assert port.now() - 1000 <= OUTAGE + ROUND_TRIP


@every_method
@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_release_whose_outcome_was_unknown_can_be_called_again(
    method: ReleaseMethod, fate: Any
) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.faults = [fate] if method != "transaction" else [None, fate]
    port.usual = request_lost
    with pytest.raises(Disconnected):
        run(release(port, claim, method))
    port.usual = delivered

    run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


@pytest.mark.parametrize("fate", [reply_lost, request_lost])
def test_lease_whose_release_failed_is_not_believed_any_more(fate: Any) -> None:
    port = new_port()
    claim = taken(port, "a", expire=60)
    port.usual = fate
    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))
    port.usual = delivered

    with pytest.raises(LockNotOwnedError):
        run(extend(port, claim, 60))

    assert not claim.is_live(port.now())


def test_release_of_a_lease_that_ran_out_leaves_the_next_one_alone() -> None:
    port = new_port()
    claim = taken(port, "a", expire=1)
    port.clock.advance(2)
    successor = taken(port, "a", owner="another thread")

    with pytest.raises(LockLostError):
        run(release(port, claim, "script"))

    assert port.held == {KEY: successor}
    assert port.server.value(KEY) == successor.identifier


def test_loss_that_was_told_is_told_again_whatever_becomes_of_the_release() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.drop(KEY)
    with pytest.raises(LockLostError):
        run(extend(port, claim, 60))
    port.faults = [reply_lost]

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, "script"))


@every_method
def test_definite_error_is_raised_at_once_and_ends_nothing(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [raising(ResponseError("ERR no such thing"))]

    with pytest.raises(ResponseError, match="no such thing"):
        run(release(port, claim, method))

    assert len(port.log) == (2 if method == "native" else 1)
    assert claim.state is not ENDED


@pytest.mark.parametrize("reply", [None, b"OK", 1, b"another:1", [], [b"another:1", b""]], ids=repr)
def test_reply_to_another_command_is_not_believed(reply: Any) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [mismatched(reply)]

    run(release(port, claim, "script"))

    assert port.distrusted == 1
    assert port.verbs == ["release", "release"]
    assert port.server.value(KEY) is None


@pytest.mark.parametrize("reply", [b"OK", b"", None, [], 7], ids=repr)
def test_native_release_takes_no_other_reply_than_yes_or_no(reply: Any) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [mismatched(reply)]

    run(release(port, claim, "native"))

    assert port.server.value(KEY) is None


@every_method
@pytest.mark.parametrize("reply_left", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), Limit(), TimeoutError()])
def test_interrupt_in_the_middle_still_frees_the_lock(
    method: ReleaseMethod, reply_left: bool, error: BaseException
) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [interrupted(error, reply_left=reply_left)]

    with pytest.raises(type(error)):
        run(release(port, claim, method))

    assert port.server.value(KEY) is None
    assert port.held == {}
    assert not claim.is_live(port.now())


@every_method
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), Limit(), TimeoutError("too slow")])
def test_exception_from_outside_at_the_end_of_a_block_is_told(
    method: ReleaseMethod, failed: bool, error: BaseException
) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [raising(error)]

    with pytest.raises(type(error)):
        run(leave(port, claim, method, failed=failed))

    assert port.server.value(KEY) is None
    assert port.held == {}


def test_exception_from_outside_is_told_though_a_request_failed_before() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [request_lost, refused, raising(Limit())]

    with pytest.raises(Limit):
        run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("place", [0, 1])
def test_exception_from_outside_is_told_by_a_release_of_several_names(place: int) -> None:
    port = cluster_port()
    claim = taken(port, "a", "b")
    port.faults = [reply_lost, None]
    port.faults[place] = raising(Limit())

    with pytest.raises(Limit):
        run(release(port, claim, "script"))

    assert port.server.value(FIRST) is None
    assert port.server.value(SECOND) is None


def test_sentence_of_an_exception_from_outside_is_not_the_servers() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [raising(Limit("unknown command"))]

    with pytest.raises(Limit):
        run(release(port, claim, "native"))

    assert port.server.value(KEY) is None


@every_method
def test_release_interrupted_before_its_outcome_was_noted_can_be_called_again(
    method: ReleaseMethod,
) -> None:
    port = new_port()
    claim = taken(port, "a")
    run(release_keys(port, claim, method, port.now() + 1))  # and then an exception from outside

    run(release(port, claim, method))

    assert not claim.is_lost(port.now())


@every_method
def test_interrupt_before_the_request_left_still_frees_the_lock(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.faults = [raising(KeyboardInterrupt())]

    with pytest.raises(KeyboardInterrupt):
        run(release(port, claim, method))

    assert port.server.value(KEY) is None


# Transactions


def test_transaction_is_tried_again_when_the_key_changed_meanwhile() -> None:
    def extended_by_another_thread(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 60)
        return delivered(request)

    port = new_port()
    claim = taken(port, "a")
    port.faults = [None, extended_by_another_thread]

    run(release(port, claim, "transaction"))

    assert port.verbs == ["WATCH", "EXEC"] * 2
    assert port.server.value(KEY) is None


def test_transaction_does_not_delete_the_key_that_another_took_in_between() -> None:
    def taken_by_another(request: Request) -> Any:
        port.server.put(KEY, "another", 60)
        return delivered(request)

    port = new_port()
    claim = taken(port, "a")
    port.faults = [None, taken_by_another]

    with pytest.raises(LockLostError):
        run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == "another"


def test_transaction_that_never_succeeds_ends() -> None:
    def changed(request: Request) -> Any:
        port.server.put(KEY, claim.identifier, 60)
        return delivered(request)

    port = new_port()
    claim = taken(port, "a", expire=60)
    port.latency, port.usual = 0.1, changed

    with pytest.raises(LockNotOwnedError, match="changes faster"):
        run(release(port, claim, "transaction"))

    assert port.now() - 1000 < OUTAGE + 1


def test_cluster_has_no_transactions() -> None:
    port = cluster_port()
    claim = taken(port, "a")

    with pytest.raises(ConfigurationError, match="method='script'"):
        run(release(port, claim, "transaction"))

    assert port.log == []


# One native command


def test_native_release_uses_what_the_server_has() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELEX"]))
    claim = taken(port, "a")

    run(release(port, claim, "native"))

    assert port.verbs == ["DELIFEQ", "EXISTS", "DELEX", "EXISTS"]
    assert port.server.value(KEY) is None


# Several keys


@every_method
def test_several_keys_are_deleted(method: ReleaseMethod) -> None:
    port = new_port()
    claim = taken(port, "a", "b")

    run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("method", ["script", "native"])
def test_keys_of_several_slots_are_deleted(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True, natives=["DELEX"]))
    claim = taken(port, "a", "b")

    run(release(port, claim, method))

    assert port.server.value(FIRST) is port.server.value(SECOND) is None


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("lost", [FIRST, SECOND])
@pytest.mark.parametrize("holder", [None, "another"])
def test_loss_of_one_key_is_told_and_the_other_let_go(
    cluster: bool, lost: bytes, holder: str | None
) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = taken(port, "a", "b")
    (kept,) = {FIRST, SECOND} - {lost}
    if holder is None:
        port.server.drop(lost)
    else:
        port.server.put(lost, holder, 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == (None if holder is None else "ano…")
    assert port.server.value(kept) is None
    assert port.server.value(lost) == holder


def test_key_of_another_is_told_though_our_own_delete_took_the_rest() -> None:
    port = cluster_port()
    port.may_resend = True
    claim = taken(port, "a", "b")
    port.server.put(FIRST, "another", 60)
    port.faults = [None, resent]

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == "ano…"


def test_key_of_another_is_told_though_the_first_key_is_gone() -> None:
    port = SimulatedPort(may_resend=True)
    claim = taken(port, "a", "b")
    port.server.drop(b"sys:lock:a")
    port.server.put(b"sys:lock:b", "another", 60)

    with pytest.raises(LockLostError) as caught:
        run(release(port, claim, "script"))

    assert caught.value.holder == "ano…"


def test_sick_node_does_not_keep_the_keys_of_a_healthy_one() -> None:
    def one_node_down(request: Request) -> Any:
        return (request_lost if FIRST in request.command else delivered)(request)

    port = cluster_port()
    claim = taken(port, "a", "b")
    port.usual = one_node_down

    with pytest.raises(Disconnected):
        run(release(port, claim, "script"))

    assert port.server.value(SECOND) is None


# The end of a block


def test_block_that_lost_its_lease_tells_so_at_its_end() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.put(KEY, "another", 60)

    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_block_that_was_told_of_its_loss_by_extending_tells_so_at_its_end() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.drop(KEY)
    with pytest.raises(LockLostError):
        run(extend(port, claim, 10))

    with pytest.raises(LockLostError):
        run(leave(port, claim, "script", failed=False))


def test_loss_never_replaces_the_error_of_the_block(caplog: pytest.LogCaptureFixture) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.drop(KEY)

    with caplog.at_level(logging.WARNING):
        run(leave(port, claim, "script", failed=True))

    assert "ended before the work did" in caplog.text


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize(
    "error", [Disconnected("the server is away"), ResponseError("OOM command not allowed")]
)
def test_failed_release_at_the_end_of_a_block_is_logged(
    failed: bool, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.usual = raising(error)

    with caplog.at_level(logging.WARNING):
        run(leave(port, claim, "script", failed=failed))

    assert str(error) in caplog.text
    assert "lock 'a' could not be released" in caplog.text
    assert claim.identifier not in caplog.text
    assert not claim.is_live(port.now())
    assert port.held == {}


def test_block_left_by_a_forked_child_lets_nothing_go() -> None:
    port = new_port()
    claim = taken(port, "a")
    claim.process += 1

    with pytest.raises(LockNotOwnedError):
        run(leave(port, claim, "script", failed=False))

    assert port.server.value(KEY) == claim.identifier


@pytest.mark.parametrize("failed", [False, True])
def test_lease_that_ran_out_while_its_server_is_away_is_known_to_be_lost(failed: bool) -> None:
    port = SimulatedPort()
    claim = taken(port, "a", expire=1)
    port.clock.advance(2)
    port.usual = request_lost

    with contextlib.suppress(LockLostError):
        run(leave(port, claim, "script", failed=failed))

    assert claim.lost_reason == "its time ran out"


def refusing(words: str, *names: str) -> Any:
    """The server refuses to run all commands but these."""

    def fate(request: Request) -> Any:
        if request.command[0] in names:
            return delivered(request)
        request.travel()
        raise ResponseError(words)

    return fate


@pytest.mark.parametrize("words", ["MISCONF cannot save", "OOM no memory", "NOPERM no right"])
@pytest.mark.parametrize("holder", [None, "another"])
@pytest.mark.parametrize("failed", [False, True])
def test_loss_is_told_though_the_server_refused_the_release(
    words: str, holder: str | None, failed: bool
) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.server.drop(KEY)
    if holder is not None:
        port.server.put(KEY, holder, 60)
    port.usual = refusing(words, "GET")

    with contextlib.ExitStack() as stack:
        if not failed:
            stack.enter_context(pytest.raises(LockLostError))
        run(leave(port, claim, "script", failed=failed))

    assert claim.lost_reason is not None
    assert port.held == {}


@pytest.mark.parametrize(
    ("words", "cure"), [("NOPERM no right", "SECURITY.rst"), ("OOM", "memory"), ("MISCONF", "")]
)
def test_release_that_was_refused_is_logged_with_what_helps(
    words: str, cure: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = new_port()
    claim = taken(port, "a")
    port.usual = refusing(words, "GET")

    run(leave(port, claim, "script", failed=False))

    assert "it will expire with its lease" in caplog.text
    assert cure in caplog.text
    assert claim.lost_reason is None


def test_nobody_is_asked_for_a_loss_who_has_not_answered() -> None:
    port = new_port()
    claim = taken(port, "a")
    port.usual = request_lost

    run(leave(port, claim, "script", failed=False))

    assert "GET" not in port.verbs


def test_exception_from_outside_while_the_loss_is_looked_for_is_told() -> None:
    def cut_off(request: Request) -> Any:
        if request.command[0] == "GET":
            raise Limit
        return refusing("MISCONF")(request)

    port = new_port()
    claim = taken(port, "a")
    port.usual = cut_off

    with pytest.raises(Limit):
        run(leave(port, claim, "script", failed=False))

"""Requests are repeated while their outcome is unknown; only their own replies are accepted."""

import itertools
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from support.faults import delivered, mismatched, raising, reply_lost
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim

from redis_lock_decorators._flow.requests import (
    Refusal,
    ReplyMismatch,
    ask,
    groups,
    is_unknown,
    text,
)
from redis_lock_decorators._flow.retries import OUTAGE, with_repeats
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, TimeLimits, end_of
from redis_lock_decorators._io.blocking_port import run

KEY = b"sys:lock:a"


class Failing:
    """An attempt that fails with the given errors one by one and then succeeds."""

    def __init__(
        self, port: SimulatedPort, *errors: BaseException, endlessly: bool = False
    ) -> None:
        self._port = port
        self._errors = itertools.cycle(errors) if endlessly else iter(errors)
        self.began: list[float] = []
        self.untils: list[float] = []

    async def __call__(self, until: float) -> str:
        self.began.append(self._port.now())
        self.untils.append(until)
        for error in self._errors:
            raise error
        return "done"


# Repetitions


def test_success_is_not_repeated() -> None:
    port = SimulatedPort()
    attempt = Failing(port)

    result = run(with_repeats(port, attempt, port.now() + 10))

    assert result == "done"
    assert len(attempt.began) == 1


@pytest.mark.parametrize(
    "error",
    [
        Disconnected("gone"),
        ReadOnlyError("You can't write against a read only replica."),
        ResponseError("BUSY Redis is busy running a script."),
        ReplyMismatch("another's reply"),
    ],
)
def test_unknown_outcome_is_first_repeated_without_a_pause(error: Exception) -> None:
    port = SimulatedPort()
    attempt = Failing(port, error)

    result = run(with_repeats(port, attempt, port.now() + 10))

    assert result == "done"
    assert attempt.began == [1000, 1000]


@pytest.mark.parametrize(
    "error", [ResponseError("ERR wrong"), ValueError("wrong"), TimeoutError("a signal handler's")]
)
def test_definite_error_is_not_repeated(error: Exception) -> None:
    port = SimulatedPort()
    attempt = Failing(port, error)

    with pytest.raises(type(error)) as caught:
        run(with_repeats(port, attempt, port.now() + 10))

    assert caught.value is error
    assert len(attempt.began) == 1


def test_interrupt_is_not_repeated() -> None:
    port = SimulatedPort()
    attempt = Failing(port, Disconnected("gone"), KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        run(with_repeats(port, attempt, port.now() + 10))

    assert len(attempt.began) == 2


def test_pauses_between_repetitions_grow_and_are_spread() -> None:
    ports = [SimulatedPort(seed=seed) for seed in (1, 2)]

    for port in ports:
        with pytest.raises(Disconnected):
            run(
                with_repeats(
                    port, Failing(port, Disconnected("gone"), endlessly=True), port.now() + 60
                )
            )

    first, second = (port.pauses for port in ports)
    assert first[0] == second[0] == 0
    assert first[1:] != second[1:]
    assert 0.01 <= first[1] <= 0.03
    assert max(first) > 0.3
    assert max(first) <= 0.96


@pytest.mark.parametrize(("wait", "longest"), [(0, 0), (0.5, 0.5), (3, 3), (60, OUTAGE)])
def test_repeating_ends_with_the_wait_or_the_outage(wait: float, longest: float) -> None:
    port = SimulatedPort()
    attempt = Failing(port, Disconnected("gone"), endlessly=True)

    with pytest.raises(Disconnected, match="gone"):
        run(with_repeats(port, attempt, port.now() + wait))

    assert len(attempt.began) >= 2
    assert longest - 1 <= port.now() - 1000 <= longest


@pytest.mark.parametrize(
    ("wait", "seconds"), [(-5, ROUND_TRIP), (0, ROUND_TRIP), (3, 3), (60, OUTAGE)]
)
def test_timeout_of_a_request_is_the_wait_within_bounds(wait: float, seconds: float) -> None:
    port = SimulatedPort()
    attempt = Failing(port)

    run(with_repeats(port, attempt, port.now() + wait))

    assert attempt.untils == [1000 + seconds]


# Replies


def test_request_is_a_script_with_its_keys_and_a_serial_number() -> None:
    port, claim = SimulatedPort(), new_claim("a", "b")

    run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))
    run(ask(port, "release", claim, claim.keys, until=port.now() + 1))

    first, second = (sent.command[2:] for sent in port.log)
    assert first == (2, *claim.keys, claim.identifier, first[4], 500)
    assert second == (2, *claim.keys, claim.identifier, second[4])
    assert first[4] != second[4]


@pytest.mark.parametrize(
    "error", [NoScriptError("No matching script."), ResponseError("NOSCRIPT No matching script.")]
)
def test_unknown_script_is_sent_as_text(error: Exception) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [raising(error)]

    refusal = run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))

    assert refusal is None
    assert [sent.command[0] for sent in port.log] == ["EVALSHA", "EVAL"]


@pytest.mark.parametrize("end", [None, 1000.9, 1010])
def test_text_of_an_unknown_script_has_a_whole_round_trip(end: float | None) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [raising(NoScriptError("No matching script."))]
    untils: list[float] = []

    async def send(*command: object, until: float) -> object:
        untils.append(until)
        await port.sleep(0.8)
        return await port.send(*command, until=until)

    until = 1001.0 if end is None else TimeLimits(1000.9, end)
    run(ask(port, "acquire", claim, claim.keys, 500, until=until, send=send))

    assert untils == [until, pytest.approx(1000.8 + ROUND_TRIP, abs=0.01)]
    assert end_of(untils[1]) == max(untils[1], end or 0)


@pytest.mark.parametrize("decoded", [False, True])
def test_refusal_has_the_holder_and_the_remaining_time(decoded: bool) -> None:
    port, claim = SimulatedPort(text=decoded), new_claim("a")
    port.latency = 0
    port.server.put(KEY, "another", 1.5)

    refusal = run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))

    assert refusal == Refusal("another", 1.5)


def test_refusal_without_a_holder_has_none() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    refusal = run(ask(port, "unlock", claim, claim.keys, 0, until=port.now() + 1))

    assert refusal == Refusal(None, None)


@pytest.mark.parametrize("reply", [None, b"OK", 1, [], [1], {}, b"\xff", [[b"x"]]], ids=repr)
def test_reply_without_the_own_mark_is_a_mismatch(reply: Any) -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [mismatched(reply)]

    with pytest.raises(ReplyMismatch) as caught:
        run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))

    assert caught.value.lock_name == "a"
    assert port.idle_drops == 1


def test_mismatched_reply_is_an_unknown_outcome() -> None:
    port = SimulatedPort()

    unknown = is_unknown(port, ReplyMismatch("another's reply", "a"))

    assert unknown


def test_two_claims_never_share_a_mark() -> None:
    port, first = SimulatedPort(), new_claim("a")
    second = new_claim("a", identifier=first.identifier)

    for claim in (first, second):
        run(ask(port, "extend", claim, claim.keys, 500, until=port.now() + 1))

    marks = [sent.command[4:6] for sent in port.log]
    assert marks[0] != marks[1]


# Grouping of keys


def test_keys_of_a_single_server_stay_together() -> None:
    claim = new_claim("a", "b", "c")

    together = groups(SimulatedPort(), claim)

    assert together == [claim.keys]


def test_keys_of_a_cluster_are_grouped_by_slot() -> None:
    claim = new_claim("{x}1", "a", "{x}2", "b")
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))

    grouped = groups(port, claim)

    assert sorted(len(group) for group in grouped) == [1, 1, 2]
    assert sorted(key for group in grouped for key in group) == sorted(claim.keys)


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        *((b"abc", "abc"), ("abc", "abc"), (b"\xff", "\udcff"), ("\udcff", "\udcff")),
        *((b"", None), ("", None), (None, None), (0, None), (1, None), ([b"a"], None)),
    ],
)
def test_text_replies_are_read_decoded_or_not(reply: Any, read: str | None) -> None:
    assert text(reply) == read


def test_simulated_server_caches_a_script_sent_as_text() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.server.loaded.clear()
    port.usual = delivered

    for _ in range(2):
        run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))

    assert [sent.command[0] for sent in port.log] == ["EVALSHA", "EVAL", "EVALSHA"]


def test_lost_reply_is_raised_by_a_single_request() -> None:
    port, claim = SimulatedPort(), new_claim("a")
    port.faults = [reply_lost]

    with pytest.raises(Disconnected):
        run(ask(port, "acquire", claim, claim.keys, 500, until=port.now() + 1))

    assert port.server.value(KEY) == claim.identifier


def test_reply_is_recognised_by_the_identifier_that_was_sent() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    def handed_off_during_request(request: Any) -> Any:
        reply = delivered(request)
        claim.identifier = ""
        return reply

    port.faults = [handed_off_during_request]
    refusal = run(ask(port, "acquire", claim, claim.keys, claim.expire_ms, until=port.now() + 1))

    assert refusal is None
    assert port.idle_drops == 0

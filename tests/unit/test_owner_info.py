"""The information about its holder that is stored next to a lock."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError
from support.acquiring import attempt
from support.faults import reply_lost
from support.releases import KEY
from support.simulation import SimulatedPort, cluster_port, new_claim

from redis_lock_decorators import RedisLock
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import extend, owner_info
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.late_outcomes import late_outcome
from redis_lock_decorators._flow.owner_info import OwnerInfo
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.renewal.batch import Renewal, renew
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._rules.owner_info import (
    KIND,
    MOST_BYTES,
    checked_owner_info,
    digest,
    is_of,
    merged,
    parsed,
    written,
)
from redis_lock_decorators.errors import ConfigurationError, LockTimeoutError, described

OWN = companion(KEY, KIND)
#: The Unix time at which the virtual clock is 0.
EPOCH = 1_700_000_000.0
HOLDER, PROCESS = {"host": "h", "pid": 7, "thread": "main"}, {"host": "h", "pid": 7}


def informed(*names: str, **options: Any) -> Claim:
    claim = new_claim(*(names or ("a",)), **options)
    claim.owner_info = OwnerInfo(EPOCH, written(HOLDER), written(PROCESS))
    return claim


def held(port: SimulatedPort, *names: str) -> Claim:
    claim = informed(*names)
    assert attempt(port, claim, wait=0) is None
    return claim


def stored(port: SimulatedPort, key: bytes = OWN) -> Any:
    value = port.server.value(key)
    return value and parsed(value)


# The requests


def test_acquisition_and_release_need_no_more_requests() -> None:
    port = SimulatedPort()

    claim = held(port)
    found = stored(port)
    run(release(port, claim, "script"))

    assert port.verbs == ["acquire", "release"]
    assert found == {**HOLDER, "since": EPOCH + 1000}
    assert stored(port) is None


def test_information_has_the_life_of_the_lock() -> None:
    port = SimulatedPort()
    claim = held(port)

    port.clock.advance(5)
    run(extend(port, claim, 20))
    assert port.server.left(OWN) == pytest.approx(port.server.left(KEY), abs=0.001)
    port.clock.advance(5)
    run(renew(port, [Renewal(claim, 30)], port.now() + 1))
    assert port.server.left(OWN) == pytest.approx(port.server.left(KEY), abs=0.001)
    port.clock.advance(30)

    assert port.server.value(KEY) is None
    assert stored(port) is None


def test_value_of_the_lock_is_its_identifier() -> None:
    port = SimulatedPort()

    claim = held(port)

    assert port.server.value(KEY) == claim.identifier
    assert claim.identifier not in (port.server.value(OWN) or "")


def test_fence_is_part_of_it() -> None:
    port, claim = SimulatedPort(), informed()
    claim.fencing = True

    assert attempt(port, claim, wait=0) is None

    assert stored(port)["fence"] == claim.fence
    value = port.server.value(OWN)
    run(renew(port, [Renewal(claim, 10)], port.now() + 1))
    assert port.server.value(OWN) == value


def test_several_keys_have_it_each() -> None:
    port = cluster_port()

    claim = held(port, "a", "b")
    found = [stored(port, companion(key, KIND)) for key in claim.keys]
    run(release(port, claim, "script"))

    assert [about.pop("since") >= EPOCH + 1000 for about in found] == [True, True]
    assert found == [HOLDER, HOLDER]
    assert [stored(port, companion(key, KIND)) for key in claim.keys] == [None, None]


def test_min_hold_placeholder_has_none() -> None:
    port = SimulatedPort()
    claim = held(port)
    claim.held_until = port.now() + 5

    run(release(port, claim, "script"))

    assert port.server.value(KEY) == f"{claim.identifier}:rest"
    assert stored(port) is None


def test_transaction_removes_it() -> None:
    port = SimulatedPort()
    claim = held(port)

    run(release(port, claim, "transaction"))

    assert stored(port) is None


def test_forced_release_removes_it() -> None:
    port = SimulatedPort()
    held(port)

    assert run(force(port, (KEY,), None))

    assert port.server.value(KEY) is None
    assert stored(port) is None


def test_refused_waiter_learns_who_holds_the_lock() -> None:
    port = SimulatedPort()
    held(port)
    waiter = informed()

    refusal = attempt(port, waiter, wait=0)

    assert refusal is not None
    assert port.verbs == ["acquire", "acquire"]
    assert parsed(waiter.owner_info.other) == {**HOLDER, "since": EPOCH + 1000}
    assert is_of(waiter.owner_info.other, refusal.holder or "")


def test_information_of_an_earlier_holder_is_not_shown() -> None:
    port = SimulatedPort()
    value = port.server.value(OWN), held(port) and port.server.value(OWN)
    port.server.put(KEY, "of another client", 10)
    waiter = informed()

    attempt(port, waiter, wait=0)

    assert value[1]
    assert waiter.owner_info.other is None
    assert run(owner_info(port, (KEY,), ("a",))) is None


def test_information_about_the_holder_is_read() -> None:
    port = SimulatedPort()
    held(port)

    assert run(owner_info(port, (KEY,), ("a",))) == {**HOLDER, "since": EPOCH + 1000}


def test_lock_without_information_stores_none() -> None:
    port, claim = SimulatedPort(), new_claim("a")

    assert attempt(port, claim, wait=0) is None

    assert list(port.server._stored) == [KEY]
    assert run(owner_info(port, (KEY,), ("a",))) is None


# Late copies


def test_repeated_acquisition_stores_it_once() -> None:
    port, claim = SimulatedPort(), informed()
    port.faults = [reply_lost]

    assert attempt(port, claim, wait=1) is None

    assert stored(port)["since"] > EPOCH + 1000
    run(release(port, claim, "script"))
    assert stored(port) is None


def test_late_copy_restores_nothing() -> None:
    port = SimulatedPort()
    claim = held(port)
    acquisition = port.log[0].command
    claim.fence = 5  # something has changed since
    run(renew(port, [Renewal(claim, 10)], port.now() + 1))
    renewal, value = port.log[-1].command, port.server.value(OWN)

    port.server.run(acquisition)
    assert port.server.value(OWN) == value

    run(release(port, claim, "script"))
    port.server.run(renewal)
    assert stored(port) is None

    other = held(port)
    value = port.server.value(OWN)
    for command in (renewal, acquisition):
        port.server.run(command)
    assert port.server.value(OWN) == value
    assert is_of(value, other.identifier)


def test_late_reply_to_an_interrupted_release_is_understood() -> None:
    port = SimulatedPort()
    claim = held(port)
    refusal = Refusal("another")

    async def arrival(until: float) -> Any:
        return [0, [b"mark", 0, b"another"], b'{"of":"another"}']

    claim.release_sent = claim.keys, port.now()
    claim.late_reply = arrival, "mark", lambda number, holder: refusal

    assert run(late_outcome(port, claim)) == refusal


# Refusals


def test_slot_that_is_being_moved_does_not_prevent_the_acquisition() -> None:
    port = cluster_port()
    port.server.is_slot_moving = True

    claim = held(port)

    assert port.server.value(KEY) == claim.identifier
    assert stored(port) is None
    sent = len(port.log)
    held(port, "other")
    assert len(port.log) - sent == 2  # with the information, and without it


def test_missing_right_does_not_prevent_the_acquisition() -> None:
    port, claim = SimulatedPort(), informed()
    run_command = port.server.run

    def refusing(command: tuple[Any, ...]) -> Any:
        if OWN in command:
            raise NoPermissionError("No permissions to access a key")
        return run_command(command)

    port.server.run = refusing  # type: ignore[method-assign]
    assert attempt(port, claim, wait=0) is None
    run(renew(port, [Renewal(claim, 10)], port.now() + 1))
    run(release(port, claim, "script"))

    assert port.verbs == ["acquire", "acquire", "renew", "renew", "release"]
    assert port.server.value(KEY) is None


def test_other_data_next_to_the_lock_is_replaced() -> None:
    port = SimulatedPort()
    port.server._stored[OWN] = ({"other": "data"}, port.now() + 60)

    held(port)

    assert stored(port) == {**HOLDER, "since": EPOCH + 1000}


# Cohorts


class _Cohort:
    """A cohort that may hand off the lock until a time."""

    def __init__(self, until: float) -> None:
        self.until = until

    def may_hand_off_at(self, now: float) -> bool:
        return now < self.until


def test_cohort_shows_the_process_until_it_hands_off_no_more() -> None:
    port = SimulatedPort()
    claim = informed()
    claim.cohort = _Cohort(port.now() + 1)  # type: ignore[assignment]
    text = claim.owner_info.text  # type: ignore[union-attr]

    assert parsed("{" + text(claim, 1000.0)) == {**PROCESS, "since": EPOCH + 1000}
    claim.entered = 1000.2
    assert "thread" not in text(claim, 1000.9)
    assert parsed("{" + text(claim, 1001.0)) == {**HOLDER, "since": EPOCH + 1000.2}


# The rules


@pytest.mark.parametrize("option", [1, "host", None, {}, dict, lambda name: {}, ValueError])
def test_invalid_option_is_refused(option: Any) -> None:
    with pytest.raises(ConfigurationError, match="owner_info="):
        checked_owner_info(option)


@pytest.mark.parametrize("option", [True, False, lambda: {"a": 1}, lambda name="": {}])
def test_valid_option_is_accepted(option: Any) -> None:
    lock = RedisLock("a", client=redis.Redis(), owner_info=option)

    assert lock._config.options.owner_info is option


@pytest.mark.parametrize(
    "added",
    [
        *(None, "text", 5, [("a", 1)], {"since": 1}, {"of": ""}, {"n": 1}, {"fence": 1}),
        *({"a": object()}, {"a": float("nan")}, {"a": "x" * MOST_BYTES}, {(1, 2): 3}),
    ],
)
def test_unusable_fields_are_refused(added: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        merged(HOLDER, added)


def test_fields_are_added_replaced_and_removed() -> None:
    found = merged(HOLDER, {"request": 5, "thread": None, "pid": 8})

    assert found == {"host": "h", "pid": 8, "request": 5}


@pytest.mark.parametrize("value", ["", "[]", "5", "{", "[" * 100_000, b"\xff", '"text"'])
def test_malformed_information_is_ignored(value: Any) -> None:
    assert parsed(value) == {}
    assert not is_of(value, "identifier")


def test_information_is_json() -> None:
    port = SimulatedPort()
    claim = held(port)

    found = json.loads(port.server.value(OWN) or "")

    assert found.pop("of") == digest(claim.identifier)
    assert isinstance(found.pop("n"), int)
    assert found == {**HOLDER, "since": EPOCH + 1000}


def test_error_describes_the_holder() -> None:
    owner = {**HOLDER, "function": "app\n.run", "since": 5.0, "fence": 9}
    error = LockTimeoutError("a", waited=1.0, holder="abcdefgh", owner=owner, held_for=12.0)

    assert error.owner == owner
    assert "held by abcd… (h:7, thread main, function app\\n.run, for 12 s)" in str(error)
    assert len(described({**owner, "long": "x" * 5000})) < 401

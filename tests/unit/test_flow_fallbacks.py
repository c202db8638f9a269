"""An acquired lock can be released with any missing permissions, or it is not acquired at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError
from support.faults import Fate, Request, delivered, raising, reply_lost, resent
from support.releases import FIRST, KEY, SECOND, every_method
from support.simulation import Clock, SimulatedPort, SimulatedServer, _verb, acquired, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.block_exit import leave
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.functions import acquire_lock, release_lock
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.release_fallbacks import refuse_unfit_method
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, LockLostError
from redis_lock_decorators.testing.fake.server import TOGETHER

NO_RIGHT = NoPermissionError("this user has no permissions to run the 'any' command")
IN_SCRIPT = ResponseError("ACL failure in script: User u has no permissions to run the 'zrem'")
NO_COMMAND = ResponseError("unknown command 'EVALSHA', with args beginning with: ")


def new_port(cluster: bool = False, **options: Any) -> SimulatedPort:
    server = SimulatedServer(Clock(), natives=["DELIFEQ", "DELEX"], cluster=cluster)
    return SimulatedPort(server, **options)


def without(*verbs: str, error: Exception = NO_RIGHT) -> Fate:
    """Refuse some scripts (by their verbs) or commands, as to a user without the rights."""

    def fate(request: Request) -> Any:
        command = request.command
        parts = command[1:] if command[0] == TOGETHER else [command]
        if any(_verb(part) in verbs for part in parts) or command[0] in verbs:
            return raising(error)(request)
        return delivered(request)

    return fate


@every_method
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
@pytest.mark.parametrize("error", [NO_RIGHT, IN_SCRIPT, NO_COMMAND], ids=["user", "script", "none"])
def test_lock_is_released_by_the_only_permitted_method(
    method: ReleaseMethod, names: tuple[str, ...], error: Exception
) -> None:
    verbs = {"release", "unlock", "WATCH", "DELIFEQ"}
    for allowed in verbs:
        port = new_port()
        claim = acquired(port, *names)
        port.usual = without(*verbs - {allowed}, "DELEX", error=error)

        run(release(port, claim, method))

        assert [port.server.value(key) for key in claim.keys] == [None] * len(names)


def sent_twice(allowed: str) -> Fate:
    """The client itself sends each release twice; scripts over a held lock need a missing right."""

    def fate(request: Request) -> Any:
        verb = request.port.verbs[-1]
        if TOGETHER in request.command:
            verb = _verb(request.command[1])
        is_held = request.port.server.value(KEY) is not None
        if (verb == "release" and is_held) or verb in {"unlock", "DELIFEQ", "WATCH"} - {allowed}:
            return raising(IN_SCRIPT)(request)
        return (resent if verb == allowed else delivered)(request)

    return fate


@pytest.mark.parametrize("can_ask", [True, False])
@pytest.mark.parametrize("allowed", ["unlock", "DELIFEQ"])
@every_method
def test_fallback_that_the_client_sends_twice_is_no_loss(
    method: ReleaseMethod, allowed: str, can_ask: bool
) -> None:
    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    usual = sent_twice(allowed)
    port.usual = (
        usual
        if can_ask
        else lambda request: (raising(NO_RIGHT) if port.verbs[-1] == "extend" else usual)(request)
    )

    run(release(port, claim, method))

    assert port.server.value(KEY) is None


@pytest.mark.parametrize("allowed", ["unlock", "DELIFEQ"])
@every_method
def test_loss_is_reported_though_the_client_may_send_a_fallback_twice(
    method: ReleaseMethod, allowed: str
) -> None:
    port = new_port(may_resend=True)
    claim = acquired(port, "a")
    port.usual = without("release", *{"unlock", "DELIFEQ", "WATCH"} - {allowed}, "DELEX")
    port.server.drop(KEY)

    if allowed == "unlock":
        with pytest.raises(LockLostError, match="gone"):
            run(release(port, claim, method))
    else:  # no script may run after it, so that this is not known
        run(release(port, claim, method))


@every_method
def test_loss_is_reported_by_the_only_permitted_method(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.server.put(KEY, "another", 60)
    port.usual = without("release", "WATCH", "DELIFEQ", "DELEX")

    with pytest.raises(LockLostError, match="ano"):
        run(release(port, claim, method))

    assert port.server.value(KEY) == "another"


@every_method
@pytest.mark.parametrize(
    ("allowed", "min_hold"),
    [("unlock", 0.0), ("unlock", 3.0), ("WATCH", 0.0), ("WATCH", 3.0), ("DELIFEQ", 0.0)],
)
@pytest.mark.parametrize("lost", [FIRST, SECOND])
def test_loss_of_one_key_is_reported_though_another_was_released(
    method: ReleaseMethod, min_hold: float, allowed: str, lost: bytes
) -> None:
    port = new_port()
    claim = acquired(port, "a", "b")
    claim.held_until = port.now() + min_hold if min_hold else -math.inf
    port.server.drop(lost)
    verbs = {"release", "min_hold", "unlock", "WATCH", "DELIFEQ"}
    port.usual = without(*verbs - {allowed}, "DELEX")

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))

    assert claim.identifier not in [port.server.value(key) for key in claim.keys]


@every_method
def test_key_to_which_no_request_was_sent_is_reported_as_lost(method: ReleaseMethod) -> None:
    def second_reply_is_lost(request: Request) -> Any:
        if _verb(request.command) != "unlock" or port.verbs.count("unlock") != 2:
            return barred(request)
        port.server.drop(claim.keys[2])
        return reply_lost(request)

    port = new_port()
    claim = acquired(port, "a", "b", "c")
    barred = without("release", "WATCH", "DELIFEQ", "DELEX")
    port.usual = second_reply_is_lost

    with pytest.raises(LockLostError, match="gone"):
        run(release(port, claim, method))

    assert port.verbs.count("unlock") in (4, 5)


@every_method
def test_fallback_that_fails_between_two_keys_is_no_loss(method: ReleaseMethod) -> None:
    def second_reply_is_lost(request: Request) -> Any:
        if _verb(request.command) != "unlock" or port.verbs.count("unlock") != 2:
            return barred(request)
        return reply_lost(request)

    port = new_port()
    claim = acquired(port, "a", "b")
    barred = without("release", "WATCH", "DELIFEQ", "DELEX")
    port.usual = second_reply_is_lost

    run(release(port, claim, method))

    assert [port.server.value(key) for key in claim.keys] == [None, None]
    assert port.verbs.count("unlock") == 3


@every_method
def test_min_hold_is_observed_by_the_only_permitted_method(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.held_until = port.now() + 3
    port.usual = without("release", "min_hold", "WATCH", "DELIFEQ", "DELEX")

    run(release(port, claim, method))

    assert port.server.value(KEY) == f"{claim.identifier}:rest"
    assert port.server.left(KEY) == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("method", ["script", "transaction"])
def test_lock_remains_if_no_permitted_method_observes_min_hold(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.held_until = port.now() + 3
    port.usual = without("release", "min_hold", "unlock", "WATCH")

    with pytest.raises(NoPermissionError):
        run(release(port, claim, method))

    assert port.server.value(KEY) == claim.identifier
    assert not {"DELIFEQ", "DELEX"} & set(port.verbs)


def test_lock_expires_immediately_if_it_must_not_be_deleted() -> None:
    port = new_port()
    claim = acquired(port, "a")
    unlocks = without("unlock")

    def fate(request: Request) -> Any:
        deletes = request.command[-1] == 0
        return (unlocks if deletes else without("release", "WATCH", "DELIFEQ", "DELEX"))(request)

    port.usual = fate
    run(release(port, claim, "script"))

    port.clock.advance(0.002)
    assert port.server.value(KEY) is None


@every_method
def test_first_refusal_is_raised_if_every_method_is_refused(method: ReleaseMethod) -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.usual = raising(NO_RIGHT)

    with pytest.raises(NoPermissionError):
        run(release(port, claim, method))

    assert claim.state is not ENDED


def test_lost_reply_causes_no_other_release_method() -> None:
    port = new_port()
    claim = acquired(port, "a")
    port.faults = [reply_lost]

    run(release(port, claim, "script"))

    assert set(port.verbs) == {"release"}


def test_lock_is_released_though_its_queue_entry_cannot_be_removed() -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.queue_entry = f"channel|{claim.identifier}|1000"
    port.usual = without("cancel")

    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None


def test_transaction_without_memory_is_replaced_by_a_script() -> None:
    port = new_port()
    claim = acquired(port, "a")
    claim.held_until = port.now() + 3
    port.usual = without("EXEC", error=ResponseError("OOM command not allowed"))

    run(release(port, claim, "transaction"))

    assert port.server.value(KEY) == f"{claim.identifier}:rest"


# Native


def test_lease_is_released_by_script_without_a_native_command() -> None:
    port = SimulatedPort()
    claim = acquired(port, "a")

    run(leave(port, claim, "native", failed=False))

    assert port.verbs[-1] == "release"
    assert port.server.value(KEY) is None


def test_native_function_without_a_native_command_is_refused() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "mine", 60)

    with pytest.raises(ConfigurationError, match=r"DELIFEQ, DELEX .* method='script'"):
        run(release_lock(port, new_claim("a", identifier="mine"), "native"))

    assert port.server.value(KEY) == "mine"


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("forbidden", ["EXISTS", "HDEL"])
def test_native_release_without_rights_to_the_queue_succeeds(cluster: bool, forbidden: str) -> None:
    port = new_port(cluster)
    claim = acquired(port, "a")
    claim.has_queued = True
    port.server._handlers[forbidden] = _refusing

    run(release(port, claim, "native"))

    assert port.server.value(KEY) is None
    assert not claim.is_lost(port.now())


def _refusing(*arguments: Any) -> Any:
    raise NO_RIGHT


# Checks before the acquisition


def test_transaction_is_refused_to_clients_without_transactions() -> None:
    refuse_unfit_method(new_port(), "transaction")
    refuse_unfit_method(new_port(cluster=True), "native")
    with pytest.raises(ConfigurationError, match="cannot WATCH"):
        refuse_unfit_method(new_port(cluster=True), "transaction")


def test_lock_is_not_acquired_without_the_right_to_run_scripts() -> None:
    port = new_port()
    port.usual = without("acquire")

    with pytest.raises(NoPermissionError):
        run(acquire(port, new_claim("a"), 0, 0.1))

    assert port.server.value(KEY) is None


def _no_scripts(*others: str) -> Callable[[Request], Any]:
    verbs = ("acquire", "release", "extend", "time_left", "unlock", "recheck")
    return without(*verbs, *others)


def test_function_on_a_cluster_refuses_a_lock_it_could_not_release() -> None:
    port = new_port(cluster=True, may_resend=True)
    port.usual = _no_scripts("DELIFEQ", "DELEX")

    with pytest.raises(ConfigurationError, match="could be acquired, but not released"):
        run(acquire_lock(port, new_claim("a"), 0, 0.1))

    assert port.server.value(KEY) is None


def test_function_on_a_cluster_without_scripts_uses_commands() -> None:
    port = new_port(cluster=True, may_resend=True)
    port.usual = _no_scripts()
    claim = new_claim("a")

    assert run(acquire_lock(port, claim, 0, 0.1))
    assert port.server.value(KEY) == claim.identifier
    assert run(release_lock(port, claim, None))
    assert port.server.value(KEY) is None


def test_function_without_transactions_releases_by_script() -> None:
    port = new_port()
    port.usual = without("WATCH")
    claim = new_claim("a")
    assert run(acquire_lock(port, claim, 0, 0.1))

    assert run(release_lock(port, claim, None))

    assert port.server.value(KEY) is None


def test_lock_is_released_without_rights_to_its_companion_keys() -> None:
    port = new_port()
    claim = acquired(port, "a")
    _, queue, _ = with_queue((KEY,))

    def fate(request: Request) -> Any:
        return (raising(IN_SCRIPT) if queue in request.command else delivered)(request)

    port.usual = fate
    run(release(port, claim, "script"))

    assert port.server.value(KEY) is None

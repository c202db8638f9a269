"""``release_lock`` and ``extend_lock``: only the lock of the given identifier."""

import contextlib
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from support.faults import (
    Request,
    interrupted,
    mismatched,
    reply_lost,
    request_lost,
    resent,
)
from support.releases import KEY, every_method
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.functions import extend_lock, release_lock
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.requests import ReplyMismatch
from redis_lock_decorators._flow.retries import OUTAGE
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError


def held(port: SimulatedPort, seconds: float = 60, identifier: str = "mine") -> Claim:
    """A claim that holds the lock with an identifier of the caller."""
    port.server.put(KEY, identifier, seconds)
    return new_claim("a", identifier=identifier)


# Release


@every_method
def test_own_lock_is_deleted(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = held(port)

    done = run(release_lock(port, claim, method))

    assert done
    assert port.server.value(KEY) is None


@every_method
def test_lock_that_is_gone_counts_as_released(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))

    done = run(release_lock(port, new_claim("a", identifier="mine"), method))

    assert done


@every_method
def test_lock_of_another_is_not_released(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    port.server.put(KEY, "another", 60)

    done = run(release_lock(port, new_claim("a", identifier="mine"), method))

    assert not done
    assert port.server.value(KEY) == "another"


@every_method
def test_min_hold_placeholder_is_not_released_by_the_old_identifier(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    port.server.put(KEY, "mine:rest", 60)

    done = run(release_lock(port, new_claim("a", identifier="mine"), method))

    assert not done
    assert port.server.value(KEY) == "mine:rest"


@every_method
@pytest.mark.parametrize("reply_left", [False, True])
def test_interrupted_release_is_completed(method: ReleaseMethod, reply_left: bool) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = held(port, identifier=new_identifier())
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=reply_left)]

    with pytest.raises(KeyboardInterrupt):
        run(release_lock(port, claim, method))

    assert port.server.value(KEY) is None


@every_method
def test_interrupted_release_by_a_common_identifier_is_not_repeated(method: ReleaseMethod) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = held(port)

    def interrupted_once_it_is_done(request: Request) -> Any:
        reply = request.execute()
        if port.server.value(KEY) is None:
            port.faults.clear()
            port.server.put(KEY, "mine", 60)  # by the next holder
            raise KeyboardInterrupt
        return reply

    port.faults = [interrupted_once_it_is_done] * 5

    with pytest.raises(KeyboardInterrupt):
        run(release_lock(port, claim, method))

    assert port.server.value(KEY) == "mine"


@pytest.mark.parametrize("holder", ["mine", "another"])
def test_reply_of_exec_to_another_command_is_not_believed(holder: str) -> None:
    port = SimulatedPort(SimulatedServer(Clock()))
    port.server.put(KEY, holder, 60)
    port.faults = [None, mismatched(1)]

    with contextlib.suppress(ReplyMismatch):
        run(release_lock(port, new_claim("a", identifier="mine"), "transaction"))

    assert port.server.value(KEY) == (None if holder == "mine" else "another")


@every_method
@pytest.mark.parametrize("fate", [reply_lost, request_lost, resent])
def test_lost_message_of_a_release_is_repeated(method: ReleaseMethod, fate: Any) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ"]))
    claim = held(port)
    port.faults = [fate]

    done = run(release_lock(port, claim, method))

    assert done
    assert port.server.value(KEY) is None


@pytest.mark.parametrize(("cluster", "verbs"), [(False, ["WATCH", "EXEC"]), (True, ["release"])])
def test_release_method_is_chosen_by_the_client(cluster: bool, verbs: list[str]) -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=cluster))
    claim = held(port)

    run(release_lock(port, claim, None))

    assert port.verbs == verbs


def test_method_that_the_client_lacks_is_refused() -> None:
    port = SimulatedPort(SimulatedServer(Clock(), cluster=True))
    claim = held(port)

    with pytest.raises(ConfigurationError):
        run(release_lock(port, claim, "transaction"))

    assert port.server.value(KEY) == "mine"


def test_release_during_an_outage_raises_the_clients_own_error() -> None:
    port = SimulatedPort()
    claim = held(port)
    port.usual = request_lost

    with pytest.raises(Disconnected):
        run(release_lock(port, claim, None))

    assert OUTAGE - 1 < port.now() - 1000 < OUTAGE + 0.1


# Extension


def test_own_lock_is_extended() -> None:
    port = SimulatedPort()
    port.server.put(KEY, "mine", 5)

    done = run(extend_lock(port, new_claim("a", expire=30, identifier="mine")))

    assert done
    assert port.server.left(KEY) == pytest.approx(30, abs=0.01)


@pytest.mark.parametrize("holder", [None, "another"])
def test_lock_of_another_or_none_is_not_extended(holder: str | None) -> None:
    port = SimulatedPort()
    if holder is not None:
        port.server.put(KEY, holder, 5)

    done = run(extend_lock(port, new_claim("a", expire=30, identifier="mine")))

    assert not done
    assert port.server.left(KEY) <= 5


def test_lost_reply_extends_once() -> None:
    port = SimulatedPort()
    claim = held(port, 5)
    port.faults = [reply_lost]

    done = run(extend_lock(port, claim))

    assert done
    assert port.server.left(KEY) == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize("reply", [None, b"OK", 1, True, [], b"mine", b"another:1"], ids=repr)
def test_reply_to_another_command_is_rejected(reply: Any) -> None:
    port = SimulatedPort()
    port.server.put(KEY, "another", 60)
    port.faults = [mismatched(reply)]

    done = run(extend_lock(port, new_claim("a", identifier="mine")))

    assert not done
    assert port.idle_drops == 1


def test_reply_to_an_earlier_call_of_the_identifier_is_rejected() -> None:
    port = SimulatedPort()
    claim = held(port)
    port.faults = [interrupted(KeyboardInterrupt(), reply_left=True)]
    with pytest.raises(KeyboardInterrupt):
        run(extend_lock(port, claim))
    port.server.put(KEY, "another", 60)

    done = run(extend_lock(port, new_claim("a", identifier="mine")))

    assert not done

"""Outcomes of releases that were repeated before the first reply arrived."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as NoReply
from support.releases import KEY, new_port
from support.simulation import SimulatedPort, acquired

from redis_lock_decorators._flow import release as flow
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.unanswered_releases import unexplained
from redis_lock_decorators._io.blocking_port import run

#: Replies to the first release: its key was gone, it was released, the server did not run it.
GONE, RELEASED, NOT_RUN = [b"mark", 0, b""], b"mark", ReadOnlyError("You can't write")


def interrupted(port: SimulatedPort, reply: Any) -> Claim:
    """A claim whose release was cut short; its reply arrives after the release is sent again."""
    claim, answers = acquired(port, "a"), [NoReply("not yet"), reply]

    async def arrival(until: float) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    claim.release_sent = claim.keys, port.now()
    claim.late_reply = arrival, "mark", lambda *refused: unexplained(claim, claim.keys, *refused)
    return claim


def complete(port: SimulatedPort, claim: Claim) -> Refusal | None:
    return run(flow._complete(port, claim, "script"))


@pytest.mark.parametrize("reply", [GONE, NOT_RUN], ids=["gone", "not run"])
def test_key_that_is_gone_is_a_loss_if_the_first_request_did_not_release_it(reply: Any) -> None:
    port = new_port()
    claim = interrupted(port, reply)
    port.server.drop(KEY)

    refusal = complete(port, claim)

    assert refusal is not None
    assert not refusal.is_taken


@pytest.mark.parametrize("holder", [None, "another"])
def test_key_that_the_first_request_released_is_no_loss(holder: str | None) -> None:
    port = new_port()
    claim = interrupted(port, RELEASED)
    port.server.drop(KEY)
    if holder is not None:
        port.server.run(("SET", KEY, holder, "PX", 9000))

    assert complete(port, claim) is None


def test_key_that_is_gone_is_no_known_loss_without_the_first_reply(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = new_port()
    claim = interrupted(port, NoReply("none at all"))
    port.server.drop(KEY)

    assert complete(port, claim) is None
    assert claim.maybe_released == claim.keys
    assert "is not known" in caplog.text


def test_key_of_another_client_remains_a_loss_without_the_first_reply() -> None:
    port = new_port()
    claim = interrupted(port, NoReply("none at all"))
    port.server.run(("SET", KEY, "another", "PX", 9000))

    refusal = complete(port, claim)

    assert refusal is not None
    assert refusal.holder == "another"
    assert claim.maybe_released == claim.keys


def test_first_reply_is_not_needed_if_the_repeated_release_deletes_the_key() -> None:
    port = new_port()
    claim = interrupted(port, GONE)

    assert complete(port, claim) is None
    assert claim.maybe_released == ()

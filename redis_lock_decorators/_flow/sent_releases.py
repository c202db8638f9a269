"""What a claim notes when a request that releases its keys is about to be sent."""

from __future__ import annotations

from functools import partial

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import is_generated
from redis_lock_decorators._flow.port import Port, Sending
from redis_lock_decorators._flow.requests import Send


def sending(port: Port, claim: Claim, keys: tuple[bytes, ...]) -> Sending:
    """Return what the port calls before the first byte of a request that releases these keys.

    An exception from outside may come while a connection is opened, which takes seconds at worst.
    Then nothing was sent, and a missing key is a loss.
    """
    # By a built-in function, as each release calls it. The time is a lower bound.
    return Sending(setattr, claim, "release_sent", (keys, port.now()))


def relies_on_record(claim: Claim) -> bool:
    """Whether nothing is to be noted if the server records what the release script does.

    With an identifier of the caller's own the release is not repeated once it may have been sent.
    """
    return claim.shares_identifier or is_generated(claim.identifier)


def noting(port: Port, claim: Claim, keys: tuple[bytes, ...]) -> Send:
    """Return the port's ``send`` for requests that release these keys."""
    return partial(port.send, sending=sending(port, claim, keys))

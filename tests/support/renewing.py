"""Renewals of held claims, and errors of servers, for tests."""

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.renewal.batch import Outcome, Renewal, renew
from redis_lock_decorators._io.blocking_port import run
from support.simulation import SimulatedPort, acquired

KEY = b"sys:lock:a"
#: Errors after which the outcome of a renewal is unknown.
ERRORS = [
    ResponseError("BUSY Redis is busy running a script."),
    BusyLoadingError("Redis is loading the dataset in memory"),
    ReadOnlyError("You can't write against a read only replica."),
    MasterDownError("Link with MASTER is down"),
    TryAgainError("Multiple keys request during rehashing of slot"),
    ClusterDownError("The cluster is down"),
    AskError("3999 127.0.0.1:6381"),
    NoPermissionError("this user has no permissions"),
    ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
    OSError("no route"),
]


def renewed(port: SimulatedPort, *claims: Claim, seconds: float = 10) -> list[Outcome]:
    """Renew claims; returns their outcomes."""
    renewals = [Renewal(claim, seconds) for claim in claims]
    return run(renew(port, renewals, port.now() + 3))


def held(port: SimulatedPort, count: int, expire: float = 10) -> list[Claim]:
    """Claims of different owners on one lock each."""
    return [
        acquired(port, f"lock {number}", expire=expire, owner=number) for number in range(count)
    ]

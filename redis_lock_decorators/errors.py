"""The exceptions. Each has its details as attributes and composes its own message."""

from __future__ import annotations

import math
from typing import Any

import redis.exceptions

#: Why a released lock is still not free.
KEPT = "kept by the min_hold of"
#: Why a lease is lost whose key does not exist.
KEY_GONE = "its key is gone"
#: Why a lease without renewal is lost. The reasons of leases that were not renewed in time begin
#: with it.
RAN_OUT = "its time ran out"
#: The server refused the renewal.
UNRENEWED = f"{RAN_OUT}, as its renewal was refused"
#: The server did not answer the renewal.
UNANSWERED = f"{RAN_OUT}, as its renewal brought no answer"
#: No renewal was sent.
NEVER_SENT = f"{RAN_OUT} before a renewal was sent"
#: The end of the reason if another client has the lock.
HOLDS = " holds it"
#: The beginning of the reason if the lease has reached its ``max_hold``.
AT_MOST = "its max_hold of"

#: The cure for a loss, by the beginning of its reason.
_CURES = {
    UNRENEWED: "allow the renewal",
    UNANSWERED: "check the server and the network, or make expire longer than such an outage",
    NEVER_SENT: "do not block the process or its event loop for so long, or make expire longer",
    RAN_OUT: "make the work shorter or expire longer",
    AT_MOST: "make the work shorter or max_hold longer",
}

#: The beginnings of composed messages: an error that is recreated from its arguments has only
#: its message, as task queues do it.
_BEGINNINGS = ("lock '", 'lock "', "the lease of lock ")


class LockError(redis.exceptions.LockError):
    """The base class of this package's errors.

    Attributes:
        lock_name: the name of the lock, without the prefix; None if there is none.
    """

    def __init__(self, sentence: str = "", lock_name: str | None = None) -> None:
        super().__init__(sentence)
        self.args = (sentence,)  # redis-py 5 would keep the arguments of the subclass
        self.lock_name = lock_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class LockTimeoutError(LockError, TimeoutError):
    """The lock was not free within ``acquire_time``.

    Attributes:
        waited: the seconds spent waiting.
        holder: the identifier of the holder at the last try, shortened; None if unknown.
        free_in: the seconds until that lease expires unless it is renewed; infinity for a key
            without a time to live, None if unknown.
    """

    def __init__(
        self,
        lock_name: str,
        *,
        waited: float | None = None,
        holder: str | None = None,
        free_in: float | None = None,
        why: str = "",
    ) -> None:
        if waited is None:  # recreated from its message
            self.waited, self.holder, self.free_in = 0.0, None, None
            super().__init__(lock_name)
            return
        self.waited = waited
        self.holder = shortened(holder)
        self.free_in = free_in
        super().__init__(self._message(lock_name, why), lock_name)

    def _message(self, lock_name: str, why: str) -> str:
        tried = f"within {self.waited:.3g} s" if self.waited >= 0.01 else "at the only try"
        held = why or (f"held by {self.holder}" if self.holder else "held by another client")
        cure = "wait longer (acquire_time=…), or in @redis_lock handle it by on_busy=…"
        if self.free_in == math.inf:
            held += " without an expiry"
            cure = "if its holder has crashed, delete the key"
        elif self.free_in is not None and held.startswith(KEPT):
            held += f" for another {self.free_in:.3g} s"
        elif self.free_in is not None:
            held += f" for at most {self.free_in:.3g} s unless renewed"
        return f"lock {shown(lock_name)} was not free {tried}: {held}; {cure}"


class LockUnconfirmedError(LockError):
    """The lock was free, but too few replicas confirmed it in time, so it was released.

    The lock is not busy: ``on_busy`` does not handle this error.
    """

    def __init__(self, lock_name: str, *, why: str = "") -> None:
        if not why:  # recreated from its message
            super().__init__(lock_name)
            return
        super().__init__(
            f"lock {shown(lock_name)} was released again: {why}; check the replicas and their "
            "network (INFO replication), wait longer (acquire_time=…) or require fewer "
            "(replicas=…)",
            lock_name,
        )


class LockNotOwnedError(LockError, redis.exceptions.LockNotOwnedError):
    """The caller does not hold this lock.

    Attributes:
        holder: the identifier of the holder, shortened; None if there is none or it is unknown.
    """

    def __init__(self, lock_name: str, *, holder: str | None = None, why: str = "") -> None:
        self.holder = shortened(holder)
        if not why and holder is None and lock_name.startswith(_BEGINNINGS):
            super().__init__(lock_name)  # recreated from its message
            return
        super().__init__(self._message(lock_name, why), lock_name)

    def _message(self, lock_name: str, why: str) -> str:
        return f"lock {shown(lock_name)} is not held by this caller: {why or self._now()}"

    def _now(self) -> str:
        return f"it is held by {self.holder}" if self.holder else "it is not locked"


class LockLostError(LockNotOwnedError):
    """A lease ended before it was released, so another client may have held the lock since."""

    def _message(self, lock_name: str, why: str) -> str:
        lost = why or self._now()
        cures = [cure for reason, cure in _CURES.items() if lost.startswith(reason)][:1]
        if not cures and (lost == KEY_GONE or self.holder or lost.endswith(HOLDS)):
            gone = "deleted, evicted, released by force, or lost by the server"
            lost = f"{lost} (the key was {gone}, or it expired)"
        cure = ", and ".join([*cures, "check what the protected code did since then"])
        return f"the lease of lock {shown(lock_name)} ended before the work did: {lost}; {cure}"


class LockNameError(LockError):
    """A lock's name cannot be built, or could differ between processes.

    Also raised if the key holds data that is not a lock.
    """


class ConfigurationError(LockError):
    """An option, a client or the environment is invalid; raised before a lock is acquired."""


def shown(lock_name: str) -> str:
    """Return a lock's name for messages: control characters escaped, at most 80 characters."""
    text = repr(lock_name)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


def shortened(identifier: str | None) -> str | None:
    """Return the beginning of an identifier: enough to compare, not enough to release the lock."""
    if not identifier:
        return None
    return repr(identifier[: min(8, len(identifier) // 2)])[1:-1] + "…"


def _rebuild(
    kind: type[LockError], arguments: tuple[object, ...], attributes: dict[str, object]
) -> LockError:
    # The inherited __new__ is ValueError's, which cannot create an OSError such as TimeoutError.
    base = OSError if issubclass(kind, OSError) else Exception
    error: LockError = base.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error
